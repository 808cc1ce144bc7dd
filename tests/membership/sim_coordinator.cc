#include "sim_coordinator.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim_worker.h"

namespace cohort::membership {

using namespace elastic;
using namespace group;

void SimCoordinator::start() {
  const LogContent found = decode_log(disk_, "the simulated log");
  disk_.resize(found.whole);
  frames_ = found.frames;
  ++generation_;
  busy_ = paused_ = false;
  membership_ = std::make_unique<Membership>(world_.scenario().rules, replay(found.entries), world_.time().now());
  world_.log(fmt::format("coordinator starts, epoch {}", membership_->coordinator_state().epoch.value));
  commit(membership_->open(world_.time().now()));
  if (world_.scenario().launcher_sees_exits && !found.entries.empty()) adopt();
  world_.time().after(0, [this, generation = generation_] {
    if (generation == generation_) tick();
  });
}

// The launcher tells a restarted coordinator which workers still run.
void SimCoordinator::adopt() {
  const auto& roster = membership_->coordinator_state().roster;
  const auto outside = std::ranges::count_if(world_.workers(), [&](const auto& one) {
    return one->alive() && std::ranges::none_of(roster, [&](const Worker& w) { return one->runs_as(w.id); });
  });
  inbox_.push_back(Adopted{static_cast<int>(outside)});
  for (const Worker& w : roster)
    if (!world_.worker_at(w.member.address)->runs_as(w.id))
      inbox_.push_back(ProcessEnded{w.id, "ended before the coordinator was restarted"});
}

void SimCoordinator::crash() {
  world_.log("coordinator crashes");
  const auto kept = world_.rng().below(being_written_.size() + 1);
  disk_.insert(disk_.end(), being_written_.begin(), being_written_.begin() + static_cast<std::ptrdiff_t>(kept));
  being_written_.clear();
  membership_.reset();
  inbox_.clear();
  ++generation_;
  for (const auto& [connection_id, connection] : connections_) world_.close(connection);
  connections_.clear();
}

void SimCoordinator::set_paused(bool paused) {
  paused_ = paused;
  if (!paused) work();
}

std::shared_ptr<Connection> SimCoordinator::accept(SimWorker& worker) {
  if (!alive()) return nullptr;
  auto connection = std::make_shared<Connection>();
  connection->connection_id = next_connection_id_++;
  connection->worker = &worker;
  connections_[connection->connection_id] = connection;
  return connection;
}

void SimCoordinator::receive(ElasticEvent event) {
  if (!alive()) return;
  inbox_.push_back(std::move(event));
  work();
}

void SimCoordinator::process_ended(WorkerId worker, std::string how) { receive(ProcessEnded{worker, std::move(how)}); }

void SimCoordinator::work() {
  while (alive() && !busy_ && !paused_ && !inbox_.empty()) {
    const ElasticEvent event = inbox_.front();
    inbox_.pop_front();
    if (const auto* ended = std::get_if<LinkEnded>(&event)) connections_.erase(ended->connection_id);
    commit(membership_->handle(event, world_.time().now()));
  }
}

// No other event is handled until the entries are on disk.
void SimCoordinator::commit(Decided decided) {
  if (decided.entries.empty()) {
    for (const auto& action : decided.actions) act(action);
    return;
  }
  being_written_ = encode_frame(decided.entries, frames_);
  busy_ = true;
  world_.time().after(world_.rng().uniform(0.001, 0.02), [this, generation = generation_, actions = std::move(decided.actions)] {
    if (generation != generation_) return;
    disk_.insert(disk_.end(), being_written_.begin(), being_written_.end());
    being_written_.clear();
    ++frames_;
    busy_ = false;
    const LogContent again = decode_log(disk_, "the simulated log");
    if (replay(again.entries) != membership_->coordinator_state()) world_.fail("a replay of the log gives another state");
    for (const auto& action : actions) act(action);
    work();
  });
}

void SimCoordinator::tick() {
  if (!paused_) {
    inbox_.push_back(Tick{});
    work();
  }
  if (!alive()) return;
  const double in = std::max(0.001, membership_->next_tick() - world_.time().now());
  world_.time().after(in, [this, generation = generation_] {
    if (generation == generation_) tick();
  });
}

void SimCoordinator::to_worker(ConnectionId connection_id, std::function<void(SimWorker&)> what) {
  const auto at = connections_.find(connection_id);
  if (at == connections_.end()) return;
  world_.send(at->second, false, [worker = at->second->worker, what = std::move(what)] { what(*worker); });
}

void SimCoordinator::act(const ElasticAction& action) {
  if (const auto* a = std::get_if<SealEpoch>(&action))
    for (const ConnectionId connection_id : a->connection_ids) to_worker(connection_id, [s = *a](SimWorker& w) { w.on(s); });
  if (const auto* a = std::get_if<BeginEpoch>(&action)) to_worker(a->connection_id, [b = *a](SimWorker& w) { w.on(b); });
  if (const auto* a = std::get_if<Release>(&action)) to_worker(a->connection_id, [r = *a](SimWorker& w) { w.released(r); });
  if (const auto* a = std::get_if<Evict>(&action)) to_worker(a->connection_id, [](SimWorker& w) { w.evicted(); });
  if (const auto* a = std::get_if<Refuse>(&action)) to_worker(a->connection_id, [](SimWorker& w) { w.evicted(); });
  if (const auto* a = std::get_if<Say>(&action)) world_.log("| " + a->text);
  if (const auto* a = std::get_if<Respawn>(&action))
    for (int i = 0; i < a->count; ++i)
      world_.time().after(world_.rng().uniform(0.05, 0.5), [this] {
        world_.spawn(static_cast<int>(world_.rng().below(static_cast<std::uint64_t>(world_.scenario().hosts))));
      });
  if (const auto* a = std::get_if<Stop>(&action)) {
    if (membership_->over() && !over_) {
      over_ = true;
      error_ = a->error;
    }
    for (const ConnectionId connection_id : a->connection_ids) to_worker(connection_id, [](SimWorker& w) { w.exit("stopped"); });
  }
}

}  // namespace cohort::membership
