// A listening port that strangers can reach: takes connections, lets many shake hands at once, hands out those that proved themselves.
// A stranger costs a descriptor and about 2 KiB for at most 5 s. When kStrangers of them are being heard the oldest makes room for the
// next, but not before it has had kHearing: who holds the secret proves it in less, however large the crowd. The rest waits in the kernel's
// queue, so a flood is taken in at no more than kStrangers per kHearing, and whoever only waits costs no time (epoll). Owner: connect_mesh,
// the coordinator. Threads: one at a time. Failure: none from strangers (they are counted); Kind::system from accept(2).
#pragma once
#include <poll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/net/greeting.h"

namespace cohort::net {

class Door {
 public:
  static constexpr std::size_t kStrangers = 256;
  static constexpr Seconds kHearing{0.5};
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
  struct Stranger {
    Greeting greeting;
    Deadline heard;     // until then it is not closed for the sake of others
    short watched = 0;  // what the epoll set looks for
  };
  using Strangers = std::list<Stranger>;
  bool has_room() const { return strangers_.size() < kStrangers || strangers_.front().heard.passed(); }
  void welcome_strangers();
  std::optional<Wire> hear(Strangers::iterator stranger);
  std::optional<Wire> hear_ready();
  void look_for(Strangers::iterator stranger);
  void forget(Strangers::iterator stranger);
  void refuse(const std::string& why);

  const Listener& listener_;
  const Secret secret_;
  const Hello mine_;
  const Admit admit_;
  const Fd ready_;       // epoll: strangers that have something to say
  Strangers strangers_;  // in order of arrival, which is that of their limits
  std::unordered_map<int, Strangers::iterator> by_fd_;
  Counts counts_;
};

}  // namespace cohort::net
