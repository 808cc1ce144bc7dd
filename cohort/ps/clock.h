// A Clock says how far the workers of a table are: worker w has ended at(w) clocks (steps, to most), and
//   low() = min_w at(w)
// is how many all of them have ended. What a worker pushes before its tick is stamped with the clock that the tick ends, so every update
// stamped with less than low() is there.
// Owner: Table. Threads: one. Failure: Kind::usage for a worker that is none of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::ps {

class Clock {
 public:
  explicit Clock(int workers, std::int64_t at = 0);
  // The worker ends its clock. The new low(), if this one alone was at it: else nothing opens by it.
  std::optional<std::int64_t> tick(int worker);
  std::int64_t low() const { return low_; }  // without workers: where it was when the last one left
  std::int64_t fastest() const;
  std::int64_t at(int worker) const;
  bool has(int worker) const;
  int workers() const { return active_; }  // of those that have not left
  // A worker that begins late does so at a clock that all have ended, or later: what it has not done is not waited for.
  void join(int worker, std::int64_t at);
  std::optional<std::int64_t> leave(int worker);  // the new low(), if it is another one
  void set(std::int64_t at);                      // of all workers: a resumed run

 private:
  static constexpr std::int64_t kGone = -1;
  std::int64_t& of(int worker);
  std::optional<std::int64_t> rise();
  std::vector<std::int64_t> at_;  // by worker; kGone
  int active_ = 0;
  std::int64_t low_ = 0;
};

}  // namespace cohort::ps
