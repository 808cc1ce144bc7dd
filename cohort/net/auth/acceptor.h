// A listening port open to the network: accepts connections, runs many handshakes at once, returns the peers that authenticated.
// An unauthenticated peer costs a descriptor and about 2 KiB until its hello proves it (handshake.h), at most 5 s. When kMaxUnauthenticated
// handshakes are open the oldest makes room for the next, but not before it has had kPreCheckTime and all that it sent meanwhile was read,
// and kHandshakeTime if its hello carries a proof, as that of every process of the job does: a holder of the secret authenticates in less,
// however many others connect. Under TLS no hello can be seen before a round trip, so everybody has kHandshakeTime. The rest waits in the
// kernel's accept queue: at most kMaxUnauthenticated are accepted per kPreCheckTime, and the queue (1024) drains within half a second
// (under TLS: two and a half). A hello with a proof is accepted once: whoever repeats one counts as unauthenticated. After a refusal there
// is a back-off of kBackOff: unauthenticated peers that connect one by one are accepted a few at a time and wake nobody in between; those
// with a proof are served at once all the same. Connections that filled the queue before the Acceptor existed are closed when it is
// created: peers of the job connect again at once. Owner: connect_peers, the coordinator. Threads: one at a time. Failure: none from
// unauthenticated peers (they are counted); Kind::system from accept(2), for want of descriptors only when no unauthenticated peer holds
// one.
#pragma once
#include <poll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/net/auth/handshake_session.h"
#include "cohort/net/socket/listener.h"

namespace cohort::net {

class Acceptor {
 public:
  static constexpr std::size_t kMaxUnauthenticated = 256;
  static constexpr Seconds kPreCheckTime{0.1}, kHandshakeTime{0.5};
  static constexpr std::size_t kRememberedNonces = 1024;  // 32 KiB: only holders of the secret add to them
  // The most a peer waits while others are refused; without it 1000 of them a second were 1500 wakeups.
  static constexpr Seconds kBackOff{0.01};
  struct Counts {
    std::uint64_t admitted = 0;
    std::uint64_t refused = 0;   // unauthenticated, wrong keys, other versions, jobs and epochs, those Admit refused, those too slow
    std::string last_refusal;    // the latest reason, for the log
    std::uint64_t unserved = 0;  // closed unread when the Acceptor was created: in a large job its own ranks
  };
  // listener, secret and mine stay the caller's and outlive the Acceptor.
  Acceptor(const Listener& listener, const Secret& secret, Hello mine, Admit admit = {});

  // Blocking: the next peer, or nothing when the deadline passed.
  std::optional<ControlConnection> next(Deadline deadline);
  // For callers with a poll loop of their own: ask until when to wait, then what for (in the other order a back-off may end in between),
  // poll, advance.
  Deadline look_again() const;
  void watch(std::vector<pollfd>& into) const;
  std::optional<ControlConnection> advance();  // one peer per call; call until it returns nothing
  const Counts& counts() const { return counts_; }

 private:
  struct UnauthenticatedPeer {
    HandshakeSession session;
    Deadline protected_until;  // until then it is not closed to make room for others
    short watched = 0;         // events of the epoll set
    bool has_proof = false;
  };
  using UnauthenticatedPeers = std::list<UnauthenticatedPeer>;
  static bool can_evict(const UnauthenticatedPeers& some) { return !some.empty() && some.front().protected_until.passed(); }
  bool has_room() const {
    return (by_fd_.size() < kMaxUnauthenticated && !out_of_fds_) || can_evict(without_proof_) || can_evict(with_proof_);
  }
  bool backing_off() const { return !back_off_until_.passed(); }
  void clear_queue();
  std::optional<ControlConnection> accept_waiting();
  Fd accept_next();
  void evict_one(const std::string& why);
  bool is_new(ConstBytes nonce);
  void promote(UnauthenticatedPeers::iterator peer);
  const Fd& epoll_of(const UnauthenticatedPeer& peer) const { return peer.has_proof ? with_proof_ready_ : without_proof_ready_; }
  void watch_peer(UnauthenticatedPeers::iterator peer);
  void unwatch(UnauthenticatedPeer& peer);
  std::optional<ControlConnection> advance_one(UnauthenticatedPeers::iterator peer);
  std::optional<ControlConnection> advance_ready(const Fd& epoll);
  std::optional<ControlConnection> advance_all();
  void remove(UnauthenticatedPeers::iterator peer, int fd);
  void refuse(const std::string& why);

  const Listener& listener_;
  const Secret secret_;
  const Hello mine_;
  const Admit admit_;
  const Fd without_proof_ready_, with_proof_ready_;  // epoll sets
  UnauthenticatedPeers without_proof_, with_proof_;  // in order of their limits
  Deadline back_off_until_{Clock::time_point::min()};
  std::vector<Nonce> seen_nonces_;  // of hellos with a proof, the latest kRememberedNonces
  std::size_t next_nonce_ = 0;
  std::unordered_map<int, UnauthenticatedPeers::iterator> by_fd_;
  bool out_of_fds_ = false;  // no descriptor was left for the next, and none of ours has been closed since
  Counts counts_;
};

}  // namespace cohort::net
