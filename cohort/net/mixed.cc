#include "cohort/net/mixed.h"

#include <unistd.h>

#include <future>

#include "cohort/net/mixed_transport.h"
#include "cohort/net/shm/wake_pipe.h"
#include "cohort/net/socket/listener.h"

namespace cohort::net {

MixedTransport::MixedTransport(MixedPlan plan)
    : TcpTransport(std::move(plan.between)),
      hosts_(std::move(plan.hosts)),
      wake_pipe_(std::move(plan.wake_pipe)),
      rings_(mailbox_, std::move(plan.inside),
             {[this](Rank peer, const Error& error, bool polite) { lost(peer, error, polite); }, [this] { request_step(); }}) {
  extra_poll_fd_ = wake_pipe_.get();
  start_monitor();
}

Pending MixedTransport::launch(Rank to, ConstBytes bytes, Tag tag) {
  if (!is_near(to)) return TcpTransport::launch(to, bytes, tag);
  auto sending = rings_.launch(to, bytes, tag);
  return sending ? pending(std::move(sending)) : Pending{};
}

bool MixedTransport::step() {
  const bool far = TcpTransport::step();  // first: it resets the flag of wake()
  return rings_.step() || far;
}

void MixedTransport::sleep(Deadline deadline) {
  if (!rings_.begin_sleep(InboxHead::kInPoll)) return;
  TcpTransport::sleep(deadline);
  rings_.end_sleep();
  drain_wake_pipe(wake_pipe_.get());
}

void MixedTransport::send_abort(const Error& error) noexcept {
  TcpTransport::send_abort(error);
  rings_.abort(error);
}

void MixedTransport::on_failed(Rank peer) noexcept {
  if (!is_near(peer)) return TcpTransport::on_failed(peer);
  rings_.failed(peer);
}

void MixedTransport::on_room(Rank peer) {
  if (!is_near(peer)) return TcpTransport::on_room(peer);
  rings_.may_resume(peer);
  wake();
}

std::unique_ptr<PeerLinks> mixed_peer_links(MixedPlan plan) {
  plan.between.partial = true;
  return std::make_unique<MixedTransport>(std::move(plan));
}

namespace {

// Connects two ranks that are threads: by inbox and wake pipe on one host, by a connection in any case.
void connect_pair(std::vector<MixedPlan>& plans, std::size_t low, std::size_t high, ControlConnection to_high, ControlConnection to_low) {
  const bool near = plans[low].hosts[low] == plans[low].hosts[high];
  auto& low_wires = near ? plans[low].inside.connections : plans[low].between.connections;
  auto& high_wires = near ? plans[high].inside.connections : plans[high].between.connections;
  low_wires[high] = std::move(to_high);
  high_wires[low] = std::move(to_low);
  if (!near) return;
  for (const auto& [me, peer] : {std::pair{low, high}, {high, low}}) {
    std::string why;
    auto opened = Segment::open(plans[peer].inside.own.name(), false, &why);
    if (!opened) throw_failure(Kind::system, "mixed: rank {} cannot open the inbox of rank {}: {}", me, peer, why);
    plans[me].inside.peers[peer] = std::move(*opened);
    plans[me].inside.wake_pipes[peer] = open_wake_pipe(getpid(), plans[peer].wake_pipe.get());
  }
}

}  // namespace

std::vector<std::unique_ptr<PeerLinks>> mixed_world(const std::vector<int>& hosts, Epoch epoch, const std::string& congestion) {
  const std::size_t n = hosts.size();
  std::vector<MixedPlan> plans(n);
  for (std::size_t r = 0; r < n; ++r) {
    MixedPlan& plan = plans[r];
    plan.hosts = hosts;
    plan.inside.me = plan.between.me = Rank{static_cast<std::int32_t>(r)};
    plan.inside.epoch = plan.between.epoch = epoch;
    plan.inside.own = make_shm_inbox(static_cast<int>(n));
    plan.inside.peers.resize(n);
    plan.inside.wake_pipes.resize(n);
    plan.inside.connections.resize(n);
    plan.between.connections.resize(n);
    plan.between.congestion = congestion;
    plan.wake_pipe = make_wake_pipe();
  }
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Deadline deadline = Deadline::in(30s);
  const auto hello = [&](std::size_t r) { return Hello{"threads", epoch, Rank{static_cast<std::int32_t>(r)}, Role::worker}; };
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) {
      auto dialer =
          std::async(std::launch::async, [&] { return ControlConnection::connect(listener.address, secret, hello(i), deadline); });
      ControlConnection accepted = ControlConnection::accept(accept_one(listener, deadline), secret, hello(j), deadline);
      connect_pair(plans, j, i, std::move(accepted), dialer.get());
    }
  std::vector<std::unique_ptr<PeerLinks>> world;
  for (auto& plan : plans) world.push_back(mixed_peer_links(std::move(plan)));
  return world;
}

}  // namespace cohort::net
