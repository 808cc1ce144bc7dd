#include "cohort/net/mixed.h"

#include <unistd.h>

#include <future>

#include "cohort/net/bell_pipe.h"
#include "cohort/net/mixed_mesh.h"

namespace cohort::net {

MixedMesh::MixedMesh(MixedPlan plan)
    : TcpMesh(std::move(plan.between)),
      hosts_(std::move(plan.hosts)),
      bell_pipe_(std::move(plan.bell)),
      rings_(mailbox_, std::move(plan.inside),
             {[this](Rank peer, const Error& error, bool polite) { lost(peer, error, polite); }, [this] { prod(); }}) {
  also_ = bell_pipe_.get();
  start_monitor();
}

Pending MixedMesh::launch(Rank to, ConstBytes bytes, Tag tag) {
  if (!is_near(to)) return TcpMesh::launch(to, bytes, tag);
  auto sending = rings_.launch(to, bytes, tag);
  return sending ? pending(std::move(sending)) : Pending{};
}

bool MixedMesh::step() {
  const bool far = TcpMesh::step();  // first: it forgets the wakes so far
  return rings_.step() || far;
}

void MixedMesh::sleep(Deadline deadline) {
  if (!rings_.doze(InboxHead::kInPoll)) return;
  TcpMesh::sleep(deadline);
  rings_.rouse();
  hush_bell(bell_pipe_.get());
}

void MixedMesh::tell_abort(const Error& error) noexcept {
  TcpMesh::tell_abort(error);
  rings_.abort(error);
}

void MixedMesh::on_failed(Rank peer) noexcept {
  if (!is_near(peer)) return TcpMesh::on_failed(peer);
  rings_.failed(peer);
}

void MixedMesh::on_room(Rank peer) {
  if (!is_near(peer)) return TcpMesh::on_room(peer);
  rings_.thawed(peer);
  wake();
}

std::unique_ptr<Mesh> mixed_mesh(MixedPlan plan) {
  plan.between.partial = true;
  return std::make_unique<MixedMesh>(std::move(plan));
}

namespace {

// What two ranks as threads know of each other: the inbox and the bell on one host, and a connection in any case.
void introduce(std::vector<MixedPlan>& plans, std::size_t low, std::size_t high, Wire to_high, Wire to_low) {
  const bool near = plans[low].hosts[low] == plans[low].hosts[high];
  auto& low_wires = near ? plans[low].inside.wires : plans[low].between.wires;
  auto& high_wires = near ? plans[high].inside.wires : plans[high].between.wires;
  low_wires[high] = std::move(to_high);
  high_wires[low] = std::move(to_low);
  if (!near) return;
  for (const auto& [me, peer] : {std::pair{low, high}, {high, low}}) {
    std::string why;
    auto opened = Segment::open(plans[peer].inside.own.name(), false, &why);
    if (!opened) throw_failure(Kind::system, "mixed: rank {} cannot open the inbox of rank {}: {}", me, peer, why);
    plans[me].inside.peers[peer] = std::move(*opened);
    plans[me].inside.bells[peer] = open_bell(getpid(), plans[peer].bell.get());
  }
}

}  // namespace

std::vector<std::unique_ptr<Mesh>> mixed_meshes(const std::vector<int>& hosts, Epoch epoch, const std::string& congestion) {
  const std::size_t n = hosts.size();
  std::vector<MixedPlan> plans(n);
  for (std::size_t r = 0; r < n; ++r) {
    MixedPlan& plan = plans[r];
    plan.hosts = hosts;
    plan.inside.me = plan.between.me = Rank{static_cast<std::int32_t>(r)};
    plan.inside.epoch = plan.between.epoch = epoch;
    plan.inside.own = make_shm_inbox(static_cast<int>(n));
    plan.inside.peers.resize(n);
    plan.inside.bells.resize(n);
    plan.inside.wires.resize(n);
    plan.between.wires.resize(n);
    plan.between.congestion = congestion;
    plan.bell = make_bell();
  }
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Deadline deadline = Deadline::in(30s);
  const auto hello = [&](std::size_t r) { return Hello{"threads", epoch, Rank{static_cast<std::int32_t>(r)}, Role::worker}; };
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) {
      auto dialer = std::async(std::launch::async, [&] { return Wire::connect(listener.address, secret, hello(i), deadline); });
      Wire accepted = Wire::accept(accept_one(listener, deadline), secret, hello(j), deadline);
      introduce(plans, j, i, std::move(accepted), dialer.get());
    }
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (auto& plan : plans) meshes.push_back(mixed_mesh(std::move(plan)));
  return meshes;
}

}  // namespace cohort::net
