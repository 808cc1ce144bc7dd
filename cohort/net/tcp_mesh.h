// The mesh behind tcp.h. Moving bytes: tcp_mesh.cc. Watching peers and leaving: tcp_monitor.cc. For these files and tcp.cc only.
#pragma once
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cohort/net/hub.h"
#include "cohort/net/inflow.h"
#include "cohort/net/knock.h"
#include "cohort/net/outflow.h"
#include "cohort/net/tcp.h"

namespace cohort::net {

// An eventfd that wakes somebody who sleeps in poll(2).
class Doorbell {
 public:
  Doorbell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) throw_system("eventfd");
  }
  int fd() const { return fd_.get(); }
  void ring() noexcept { eventfd_write(fd_.get(), 1); }
  void hush() noexcept {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
  }

 private:
  Fd fd_;
};

// One socket to a peer, of one or several.
struct TcpPeer {
  TcpPeer(Wire w, Mailbox& mailbox, Rank r, bool local, bool paced, Strand strand)
      : wire(std::move(w)), rank(r), is_local(local), in(mailbox, r, strand), out(wire.connection(), r, !local, paced) {}
  int fd() const { return wire.fd(); }
  const Wire wire;
  const Rank rank;
  const bool is_local;               // its bytes cross no network: no checksums, no zero-copy, and its host cannot vanish
  Inflow in;                         // driver only
  bool paused = false;               // driver only: the mailbox takes no more ..
  Deadline held_until;               // .. and this long it is left at that
  int wakes_at = 1;                  // driver only: bytes that must have come before poll(2) says so
  Outflow out;                       // any thread
  std::atomic<bool> thawed{false};   // the mailbox takes more again
  std::atomic<bool> over{false};     // nothing is read any more: it is gone, or the link has failed
  std::atomic<bool> left{false};     // it ended with a goodbye
  std::atomic<bool> hung_up{false};  // the kernel saw the end of the stream: what is left is little
  Knock knock;                       // monitor only: while the stream is silent ..
  Clock::time_point answered{};      // .. and when its host last answered
  bool shut = false;                 // destructor only: we have said all we had to say
};

class TcpMesh : public Hub {  // MixedMesh derives from it: peers of this host it reaches in another way
 public:
  explicit TcpMesh(TcpPlan plan);
  ~TcpMesh() override;
  std::string_view transport() const override { return "tcp"; }
  bool shares_memory() const override { return false; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override;
  void sleep(Deadline deadline) override;
  Patience patience() const override;
  void wake() noexcept override;
  void tell_abort(const Error& error) noexcept override;
  void on_failed(Rank peer) noexcept override;
  void on_room(Rank peer) override;
  void start_monitor();  // the last thing a derived class does when it is made ..
  void stop_monitor();   // .. and the first when it goes: the monitor calls step()
  int also_ = -1;        // constant after construction: one more descriptor that ends sleep()

 private:
  std::vector<TcpPeer*>& streams(Rank rank) { return by_rank_[static_cast<std::size_t>(rank.value)]; }
  void add(Rank rank, Wire wire, const TcpPlan& plan, Strand strand);
  bool move(TcpPeer& p);
  void ended(TcpPeer& p, const Inflow::Pull& how);
  void stop(TcpPeer& p, const Error& why) noexcept;
  static Haste haste(TcpPeer& p);
  void list_polls();
  static void let_sleep(TcpPeer& p);
  bool far_ = false;  // constant after construction: some peer is on another host

  void monitor();
  bool look_after(TcpPeer& p);  // true: look again soon
  static bool vanished(TcpPeer& p);
  void say_goodbye() noexcept;
  static bool gone(TcpPeer& p) noexcept;

  std::vector<std::unique_ptr<TcpPeer>> peers_;  // the sockets to the others
  std::vector<std::vector<TcpPeer*>> by_rank_;   // the same; ours empty
  std::vector<pollfd> polls_;                    // driver only; the bell first ..
  std::vector<TcpPeer*> polled_;                 // .. then these
  Deadline look_at_;                             // driver only: when to look at a paused peer again
  Doorbell bell_;                                // for the driver
  std::atomic<bool> woken_{false}, asleep_{false};
  Doorbell monitor_bell_;
  std::atomic<bool> closing_{false};
  std::thread monitor_;
};

}  // namespace cohort::net
