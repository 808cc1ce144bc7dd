// The operations in flight on one rank, by name. A name is taken from submit() until its outcome was seen, or, when no caller looks, until
// a short window after it completed: a second submit right after the first fails reliably, however fast the first was. Owner: a
// ProgressEngine, whose mutex guards it. Threads: none of its own. Failure: open() throws Kind::usage for a name in use.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/queue/submission.h"

namespace cohort::queue {

class OperationTable {
 public:
  explicit OperationTable(Seconds window) : window_(window) {}

  std::shared_ptr<Submission> open(Operation operation, Clock::time_point now);  // gives a nameless operation its name
  std::shared_ptr<Submission> find(std::string_view name) const;                 // in flight only
  // To be called before Submission::finish(), so that `now` starts the window.
  void complete(const std::shared_ptr<Submission>& submission, Clock::time_point now);
  std::vector<std::shared_ptr<Submission>> all() const;  // in flight
  std::size_t count() const { return in_flight_; }

 private:
  struct Entry {
    std::shared_ptr<Submission> submission;
    bool completed = false;
    Clock::time_point completed_at{};
  };
  bool reserved(const Entry& entry, Clock::time_point now) const;
  void sweep(Clock::time_point now);

  const Seconds window_;
  std::unordered_map<std::string, Entry> names_;
  std::deque<std::shared_ptr<Submission>> completed_;  // in order of completion, oldest first; at most one window's worth
  std::map<Collective, std::uint64_t> unnamed_;        // how many nameless ones of each collective there were
  std::size_t in_flight_ = 0;
};

}  // namespace cohort::queue
