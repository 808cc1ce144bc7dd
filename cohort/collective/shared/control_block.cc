#include "cohort/collective/shared/control_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <climits>

#include "cohort/base/log.h"
#include "cohort/collective/shared/wait_timer.h"

namespace cohort::collective {
namespace {

// Equality, not order: no rank can be two steps ahead of one that still waits, and a word that was not used for 2^31 steps must not count.
bool reached(const Word& word, std::uint32_t target) { return word.load(std::memory_order_acquire) == target; }

constexpr std::uint64_t tagged(std::uint64_t step, std::uint64_t value) { return step << 32 | value; }

constexpr Seconds kLongestSleep{0.25};  // a wake-up lost to a race with a failure costs no more than this

}  // namespace

std::size_t SharedControlBlock::bytes_for(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return round_up(2 * sizeof(Work) + n * sizeof(Slot), kPageBytes) + n * 3 * kStageBytes;
}

SharedControlBlock::SharedControlBlock(Segment segment, int me, int ranks, SpinPolicy spin_policy, Seconds warn_after)
    : segment_(std::move(segment)),
      me_(me),
      ranks_(ranks),
      spin_policy_(spin_policy),
      warn_after_(warn_after),
      work_(reinterpret_cast<Work*>(segment_.data())),
      slots_(reinterpret_cast<Slot*>(segment_.data() + 2 * sizeof(Work))),
      stages_(segment_.data() + round_up(2 * sizeof(Work) + static_cast<std::size_t>(ranks) * sizeof(Slot), kPageBytes)) {}

void SharedControlBlock::post(std::uint64_t digest, std::uint32_t flags) {
  ++step_;
  Slot& mine = slot(me_);
  Line& line = mine.line[step_ % 2];
  line.flags = flags;
  line.digest = digest;
  line.step.exchange(static_cast<std::uint32_t>(step_));  // sequentially consistent: a sleeper sees the step or we see the sleeper
  if (mine.sleepers.load() != 0) futex_wake(line.step, INT_MAX);
}

bool SharedControlBlock::await_briefly() const {
  for (int r = 0; r < ranks_; ++r)
    if (r != me_ && !spin(line(r).step, static_cast<std::uint32_t>(step_))) return false;
  return true;
}

void SharedControlBlock::await(const Fingerprint& print, Deadline deadline) {
  for (int r = 0; r < ranks_; ++r)
    if (r != me_) sleep(line(r).step, static_cast<std::uint32_t>(step_), slot(r).sleepers, print, deadline);
}

bool SharedControlBlock::spin(const Word& word, std::uint32_t target) const {
  for (int i = 0; i < spin_policy_.pauses; ++i) {
    if (reached(word, target)) return true;
    cpu_pause();
  }
  const WaitTimer waiting;
  for (int i = 0; i < spin_policy_.yields; ++i) {
    if (reached(word, target)) return true;
    if (!yield_core()) break;
  }
  return reached(word, target);
}

void SharedControlBlock::sleep(const Word& word, std::uint32_t target, Word& sleepers, const Fingerprint& print, Deadline deadline) {
  const auto since = Clock::now();
  bool warned = false;
  while (!reached(word, target)) {
    if (failed_ != nullptr && failed_->load() && !reached(word, target)) check_();  // one that left may have got further than we have
    if (deadline.passed())
      throw_failure(Kind::timeout,
                    "the deadline passed; missing: {}. See what they do instead, or raise the timeout (of the job: COHORT_TIMEOUT)",
                    missing());
    if (!warned && Clock::now() - since > warn_after_) {
      warned = true;
      log_warning("{} #{} waits for {} since {:.0f} s", print.text(), print.number, missing(), warn_after_.count());
    }
    const auto seen = word.load();
    sleepers.fetch_add(1);
    if (seen != target) futex_wait(word, seen, deadline.sooner(Deadline::in(kLongestSleep)));
    sleepers.fetch_sub(1);
  }
}

std::string SharedControlBlock::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < ranks_; ++r)
    if (!reached(line(r).step, static_cast<std::uint32_t>(step_)))
      ranks.push_back(names_.empty() ? r : names_[static_cast<std::size_t>(r)]);
  if (ranks.empty()) return "none: the others are still reducing";
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

int SharedControlBlock::claim(int total) {
  for (int i = 0; i < ranks_; ++i) {
    const int owner = (me_ + i) % ranks_;
    const auto border = [&](std::int64_t rank) { return static_cast<int>(rank * total / ranks_); };
    const int first = border(owner), length = border(owner + 1) - first;
    if (const int next = take_next(slot(owner).taken[step_ % 2], length); next >= 0) return first + next;
  }
  return -1;
}

int SharedControlBlock::take_next(std::atomic<std::uint64_t>& taken, int of) const {
  const std::uint64_t mine = step_ & 0xFFFFFFFFu;
  auto seen = taken.load(std::memory_order_relaxed);
  for (;;) {
    const auto next = seen >> 32 == mine ? seen & 0xFFFFFFFFu : 0;
    if (next >= static_cast<std::uint64_t>(of)) return -1;
    if (taken.compare_exchange_weak(seen, tagged(mine, next + 1), std::memory_order_relaxed)) return static_cast<int>(next);
  }
}

void SharedControlBlock::complete(int total) {
  Work& work = work_[step_ % 2];
  const std::uint64_t mine = step_ & 0xFFFFFFFFu;
  auto seen = work.done.load(std::memory_order_relaxed);
  std::uint64_t finished = 0;
  do finished = (seen >> 32 == mine ? seen & 0xFFFFFFFFu : 0) + 1;
  while (!work.done.compare_exchange_weak(seen, tagged(mine, finished), std::memory_order_acq_rel, std::memory_order_relaxed));
  if (finished != static_cast<std::uint64_t>(total)) return;
  work.finished.exchange(static_cast<std::uint32_t>(step_));
  if (work.sleepers.load() != 0) futex_wake(work.finished, INT_MAX);
}

bool SharedControlBlock::await_work_briefly(int total) const {
  return total == 0 || spin(work_[step_ % 2].finished, static_cast<std::uint32_t>(step_));
}

void SharedControlBlock::await_work(int total, const Fingerprint& print, Deadline deadline) {
  if (total == 0) return;
  Work& work = work_[step_ % 2];
  sleep(work.finished, static_cast<std::uint32_t>(step_), work.sleepers, print, deadline);
}

void SharedControlBlock::wake() const {
  for (int r = 0; r < ranks_; ++r)
    for (const Line& line : slot(r).line) futex_wake(line.step, INT_MAX);
  for (int i = 0; i < 2; ++i) futex_wake(work_[i].finished, INT_MAX);
}

void SharedControlBlock::set_check(const std::atomic<bool>* failed, std::function<void()> check) {
  failed_ = failed;
  check_ = std::move(check);
}

}  // namespace cohort::collective
