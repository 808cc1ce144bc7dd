// The SharedControlBlock: shared memory in which the ranks of one communicator on one host post what they do next, in numbered steps.
// A rank posts step s on its own line, then waits until every line shows s. Lines are double-buffered and stages are triple-buffered: a
// rank can be one step ahead of the slowest, never two, so nothing it still reads is overwritten (stages: results of step s are read until
// s + 2 is posted). Owner: one communicator per process. Threads: the one that runs the communicator's collective; wake() from any.
// Failure: await() throws what `check` throws, or Kind::timeout naming the missing ranks.
#pragma once
#include <atomic>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "cohort/base/futex.h"
#include "cohort/base/segment.h"
#include "cohort/collective/fingerprint.h"
#include "cohort/collective/shared/arena.h"

namespace cohort::collective {

inline constexpr std::size_t kStageBytes = 1_MiB;  // per rank and buffer; figures for chunks in all_reduce/staged.cc

class SharedControlBlock {
 public:
  enum Flag : std::uint32_t { kStaged = 1, kInRegion = 2 };

  struct alignas(kCacheLine) Line {
    Word step;
    std::uint32_t flags;
    std::uint64_t digest;
    std::byte data[48];  // a small payload comes with the step: one cache line per peer for 4 bytes
  };
  struct Descriptor {  // what errors and in-place collectives need; a cache line of its own, read only then
    Fingerprint print;
    RegionAddress where;
  };

  static std::size_t bytes_for(int ranks);
  SharedControlBlock(Segment segment, int me, int ranks, SpinPolicy spin_policy, Seconds warn_after);

  int rank() const { return me_; }
  int size() const { return ranks_; }

  // --- one step: fill next_line(), next_descriptor(), next_stage(), then post() and await().
  Line& next_line() { return slot(me_).line[(step_ + 1) % 2]; }
  Descriptor& next_descriptor() { return slot(me_).descriptor[(step_ + 1) % 2]; }
  std::byte* next_stage() { return stage_at(me_, step_ + 1); }
  void post(std::uint64_t digest, std::uint32_t flags);
  bool await_briefly() const;  // spins a little; true when every rank is there. Reads no clock: that is a tenth of a small all-reduce
  void await(const Fingerprint& print, Deadline deadline);

  // --- what the ranks posted in the current step (steps_back: in one before it, stages only).
  const Line& line(int rank) const { return slot(rank).line[step_ % 2]; }
  const Descriptor& descriptor(int rank) const { return slot(rank).descriptor[step_ % 2]; }
  std::byte* stage(int rank, int steps_back = 0) const { return stage_at(rank, step_ - static_cast<std::uint64_t>(steps_back)); }

  // --- work shared out in the current step: the next of `total` blocks for us; -1 when none is left.
  // Blocks are divided in runs, in rank order. Each rank begins with its own, whose lines are in its cache from the last time and not in
  // another's, and when that is done helps the ranks after it. Which rank does a block does not change its bits, so a rank without a core
  // delays no other.
  int claim(int total);
  void complete(int total);
  bool await_work_briefly(int total) const;
  void await_work(int total, const Fingerprint& print, Deadline deadline);

  // After setting whatever makes `check` throw: wakes our own sleepers (and, harmlessly, every rank's).
  void wake() const;
  // Called while waiting; throws to end the wait. `failed` is looked at in the tight loop.
  void set_check(const std::atomic<bool>* failed, std::function<void()> check);
  void set_names(std::vector<int> names) { names_ = std::move(names); }  // what errors call the ranks, where not 0, 1, ..; before any step

 private:
  struct Slot {
    Line line[2];
    alignas(kCacheLine) Word sleepers;
    alignas(kCacheLine) std::atomic<std::uint64_t> taken[2];  // of its run of blocks, by step
    alignas(kCacheLine) Descriptor descriptor[2];
  };
  struct Work {
    alignas(kCacheLine) std::atomic<std::uint64_t> done;
    alignas(kCacheLine) Word finished;
    Word sleepers;
  };

  Slot& slot(int rank) const { return slots_[rank]; }
  std::byte* stage_at(int rank, std::uint64_t step) const {
    return stages_ + (static_cast<std::size_t>(rank) * 3 + step % 3) * kStageBytes;
  }
  bool spin(const Word& word, std::uint32_t target) const;
  void sleep(const Word& word, std::uint32_t target, Word& sleepers, const Fingerprint& print, Deadline deadline);
  int take_next(std::atomic<std::uint64_t>& taken, int of) const;
  std::string missing() const;

  const Segment segment_;
  const int me_;
  const int ranks_;
  const SpinPolicy spin_policy_;
  const Seconds warn_after_;
  Work* const work_;         // two, by step
  Slot* const slots_;        // one per rank
  std::byte* const stages_;  // three per rank
  const std::atomic<bool>* failed_ = nullptr;
  std::function<void()> check_;
  std::vector<int> names_;
  std::uint64_t step_ = 0;  // owned by the thread that runs the collective
};

}  // namespace cohort::collective
