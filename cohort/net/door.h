// A listening port that strangers can reach: takes connections, lets many shake hands at once, hands out those that proved themselves.
// A stranger costs a descriptor and about 2 KiB for at most 5 s; beyond kStrangers of them the oldest is closed. Nobody can hold up the
// others. Owner: connect_mesh, the coordinator. Threads: one at a time. Failure: none from strangers (they are counted); Kind::system from
// accept(2).
#pragma once
#include <poll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "cohort/net/greeting.h"

namespace cohort::net {

class Door {
 public:
  static constexpr std::size_t kStrangers = 64;
  struct Counts {
    std::uint64_t admitted = 0;
    std::uint64_t refused = 0;  // strangers, wrong keys, other versions, jobs and epochs, those the host did not want, those too slow
    std::string last_refusal;   // the latest reason, for the log
  };
  // listener, secret and mine stay the caller's and outlive the Door.
  Door(const Listener& listener, const Secret& secret, Hello mine, Admit admit = {});

  // Blocking: the next peer, or nothing when the deadline passed.
  std::optional<Wire> next(Deadline deadline);
  // For callers with a poll loop of their own: add what we wait for, poll, advance.
  void watch(std::vector<pollfd>& into) const;
  Deadline look_again() const;
  std::optional<Wire> advance();  // one peer per call; call until it gives nothing
  const Counts& counts() const { return counts_; }

 private:
  void welcome_strangers();
  void refuse(const std::string& why);

  const Listener& listener_;
  const Secret secret_;
  const Hello mine_;
  const Admit admit_;
  std::list<Greeting> greetings_;  // in order of arrival
  Counts counts_;
};

}  // namespace cohort::net
