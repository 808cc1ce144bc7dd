// The PeerLinks behind tcp.h. Moving bytes: tcp_transport.cc. Monitoring peers and leaving: tcp_monitor.cc. For these files and tcp.cc
// only.
#pragma once
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cohort/net/tcp/host_probe.h"
#include "cohort/net/tcp/receive_stream.h"
#include "cohort/net/tcp/send_stream.h"
#include "cohort/net/tcp/tcp.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::net {

// An eventfd that wakes a thread out of poll(2).
class WakeEvent {
 public:
  WakeEvent() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) throw_system("eventfd");
  }
  int fd() const { return fd_.get(); }
  void notify() noexcept { eventfd_write(fd_.get(), 1); }
  void clear() noexcept {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
  }

 private:
  Fd fd_;
};

// One socket to a peer, of one or several.
struct TcpPeer {
  TcpPeer(ControlConnection w, Mailbox& mailbox, Rank r, bool local, StreamId stream_id)
      : connection(std::move(w)), rank(r), is_local(local), in(mailbox, r, stream_id), out(connection.socket_view(), r, !local) {}
  int fd() const { return connection.fd(); }
  const ControlConnection connection;
  const Rank rank;
  const bool is_local;                  // its bytes cross no network: no checksums, no MSG_ZEROCOPY, and its host cannot vanish
  ReceiveStream in;                     // driver only
  bool paused = false;                  // driver only: the mailbox takes no more ..
  Deadline held_until;                  // .. and for this long it is not asked again
  int low_water = 1;                    // driver only: SO_RCVLOWAT, bytes that must have come before poll(2) reports them
  SendStream out;                       // any thread
  std::atomic<bool> may_resume{false};  // the mailbox takes more again
  std::atomic<bool> over{false};        // nothing is read any more: the peer is gone, or the link has failed
  std::atomic<bool> left{false};        // it ended with a goodbye
  std::atomic<bool> hung_up{false};     // POLLRDHUP: the kernel has the end of the stream, little is left to read
  HostProbe host_probe;                 // monitor only: while the stream is silent ..
  Clock::time_point answered{};         // .. and when its host last answered
  bool shut = false;                    // destructor only: everything is sent, SHUT_WR done
};

class TcpTransport : public TransportBase {  // MixedTransport derives from it and reaches peers of this host in another way
 public:
  explicit TcpTransport(TcpPlan plan);
  ~TcpTransport() override;
  std::string_view transport() const override { return "tcp"; }
  bool shares_memory() const override { return false; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override;
  void sleep(Deadline deadline) override;
  SpinPolicy patience() const override;
  void wake() noexcept override;
  void send_abort(const Error& error) noexcept override;
  void on_failed(Rank peer) noexcept override;
  void on_room(Rank peer) override;
  void start_monitor();     // the last thing a derived class's constructor does ..
  void stop_monitor();      // .. and the first of its destructor: the monitor calls step()
  int extra_poll_fd_ = -1;  // constant after construction: one more descriptor that ends sleep()

 private:
  std::vector<TcpPeer*>& streams(Rank rank) { return by_rank_[static_cast<std::size_t>(rank.value)]; }
  void add(Rank rank, ControlConnection connection, const TcpPlan& plan, StreamId stream_id);
  bool move(TcpPeer& p);
  void ended(TcpPeer& p, const ReceiveStream::Pull& how);
  void stop(TcpPeer& p, Rank cause, const Error& why) noexcept;
  static ReadUrgency urgency(TcpPeer& p);
  void list_polls();
  static void set_low_water(TcpPeer& p);
  bool far_ = false;  // constant after construction: some peer is on another host

  void monitor();
  bool check_peer(TcpPeer& p);  // true: check again soon
  static bool host_vanished(TcpPeer& p);
  void send_goodbyes() noexcept;
  static bool all_sent(TcpPeer& p) noexcept;

  std::vector<std::unique_ptr<TcpPeer>> peers_;  // the sockets to the others
  std::vector<std::vector<TcpPeer*>> by_rank_;   // the same; ours empty
  std::vector<pollfd> polls_;                    // driver only; wake_event_ first ..
  std::vector<TcpPeer*> polled_;                 // .. then these
  Deadline resume_at_;                           // driver only: when to try a paused peer again
  WakeEvent wake_event_;                         // for the driver
  std::atomic<bool> woken_{false}, asleep_{false};
  WakeEvent monitor_wake_;
  std::atomic<bool> closing_{false};
  std::thread monitor_;
};

}  // namespace cohort::net
