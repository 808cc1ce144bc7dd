// The operations in flight on one rank, by name. A name is taken from submit() until its outcome was seen, or, when nobody looks,
// until a short window after it landed: a second submit right after the first fails reliably, however fast the first was.
// Owner: a lane. Threads: none of its own; the lane's mutex guards it. Failure: open() throws Kind::usage for a name in use.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/queue/ticket.h"

namespace cohort::queue {

class Flights {
 public:
  explicit Flights(Seconds window) : window_(window) {}

  std::shared_ptr<Ticket> open(Operation operation, Clock::time_point now);  // gives a nameless operation its name
  std::shared_ptr<Ticket> find(std::string_view name) const;                 // in flight only
  // To be called before the ticket is finished, so that `now` starts the window.
  void land(const std::shared_ptr<Ticket>& ticket, Clock::time_point now);
  std::vector<std::shared_ptr<Ticket>> all() const;  // in flight
  std::size_t count() const { return flying_; }

 private:
  struct Entry {
    std::shared_ptr<Ticket> ticket;
    bool landed = false;
    Clock::time_point landed_at{};
  };
  bool reserved(const Entry& entry, Clock::time_point now) const;
  void sweep(Clock::time_point now);

  const Seconds window_;
  std::unordered_map<std::string, Entry> names_;
  std::deque<std::shared_ptr<Ticket>> landed_;  // in order of landing, oldest first; at most one window's worth
  std::map<Verb, std::uint64_t> unnamed_;       // how many nameless ones of each verb there were
  std::size_t flying_ = 0;
};

}  // namespace cohort::queue
