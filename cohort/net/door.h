// A listening port that strangers can reach: takes connections, lets many shake hands at once, hands out those that proved themselves.
// A stranger costs a descriptor and about 2 KiB until its opening does not vouch for it (handshake.h), at most 5 s. When kStrangers of them
// are being heard the oldest makes room for the next, but not before it has had kGlance and all that it said meanwhile was heard, and
// kHearing if its opening vouches for it, as that of everybody in the job does: who holds the secret proves it in less, however large the
// crowd. Under TLS nobody can vouch for himself before a round trip, so everybody has kHearing. The rest waits in the kernel's queue, so a
// flood is taken in at no more than kStrangers per kGlance, the queue never lasts longer than half a second (under TLS: two and a half),
// and whoever only waits costs no time (epoll). An opening is heard once: who repeats one that it overheard is a stranger. After a refusal
// the door rests for kRest: strangers that come one by one are met a few at a time and wake nobody in between; those that vouched are heard
// at once all the same. What filled the queue while nobody was at the door is sent away when one opens: those who belong here ask again at
// once. Owner: connect_mesh, the coordinator. Threads: one at a time. Failure: none from strangers (they are counted); Kind::system from
// accept(2), for want of descriptors only when no stranger holds one.
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
  static constexpr Seconds kGlance{0.1}, kHearing{0.5};
  static constexpr std::size_t kRemembered = 1024;  // openings, 32 KiB: only holders of the secret add to them
  static constexpr Seconds kRest{0.01};  // what a caller may wait while strangers come; 1000 of them a second were 1500 wakings without it
  struct Counts {
    std::uint64_t admitted = 0;
    std::uint64_t refused = 0;    // strangers, wrong keys, other versions, jobs and epochs, those the host did not want, those too slow
    std::string last_refusal;     // the latest reason, for the log
    std::uint64_t sent_away = 0;  // unheard, when the door was opened: in a large job its own ranks
  };
  // listener, secret and mine stay the caller's and outlive the Door.
  Door(const Listener& listener, const Secret& secret, Hello mine, Admit admit = {});

  // Blocking: the next peer, or nothing when the deadline passed.
  std::optional<Wire> next(Deadline deadline);
  // For callers with a poll loop of their own: ask until when to wait, then what for (the other way round a rest may end in between), poll,
  // advance.
  Deadline look_again() const;
  void watch(std::vector<pollfd>& into) const;
  std::optional<Wire> advance();  // one peer per call; call until it gives nothing
  const Counts& counts() const { return counts_; }

 private:
  struct Stranger {
    Greeting greeting;
    Deadline heard;     // until then it is not closed for the sake of others
    short watched = 0;  // what the epoll set looks for
    bool vouched = false;
  };
  using Strangers = std::list<Stranger>;
  static bool gives_way(const Strangers& some) { return !some.empty() && some.front().heard.passed(); }
  bool has_room() const { return (by_fd_.size() < kStrangers && !starved_) || gives_way(strangers_) || gives_way(vouched_); }
  bool resting() const { return !rest_.passed(); }
  void clear_queue();
  std::optional<Wire> welcome_strangers();
  Fd take_in();
  void turn_out_one(const std::string& why);
  bool is_new(ConstBytes nonce);
  void prefer(Strangers::iterator stranger);
  void unwatch(Stranger& stranger);
  std::optional<Wire> hear(Strangers::iterator stranger);
  std::optional<Wire> hear_ready(const Fd& set);
  std::optional<Wire> hear_all();
  void look_for(Strangers::iterator stranger);
  void forget(Strangers::iterator stranger, int fd);
  void refuse(const std::string& why);

  const Listener& listener_;
  const Secret secret_;
  const Hello mine_;
  const Admit admit_;
  const Fd ready_, vouched_ready_;  // epoll: those that have something to say
  Strangers strangers_, vouched_;   // in order of their limits
  Deadline rest_{Clock::time_point::min()};
  std::vector<Nonce> spent_;  // of those who vouched, the latest kRemembered
  std::size_t next_spent_ = 0;
  std::unordered_map<int, Strangers::iterator> by_fd_;
  bool starved_ = false;  // no descriptor was left for the next, and none of ours has been given up since
  Counts counts_;
};

}  // namespace cohort::net
