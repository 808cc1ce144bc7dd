#include "sim_coordinator.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim_worker.h"

namespace cohort::membership {

using namespace group;

void SimCoordinator::start() {
  const LogContent found = decode_log(disk_, "the simulated log");
  disk_.resize(found.whole);
  frames_ = found.frames;
  ++life_;
  busy_ = paused_ = false;
  elastic_ = std::make_unique<Elastic>(world_.scenario().rules, replay(found.entries), world_.time().now());
  world_.tell(fmt::format("coordinator starts, epoch {}", elastic_->charter().epoch.value));
  commit(elastic_->open(world_.time().now()));
  if (world_.scenario().launcher_sees_exits && !found.entries.empty()) adopt();
  world_.time().after(0, [this, life = life_] {
    if (life == life_) tick();
  });
}

// The launcher tells a coordinator that comes back which workers are still there.
void SimCoordinator::adopt() {
  const auto& roster = elastic_->charter().roster;
  const auto outside = std::ranges::count_if(world_.workers(), [&](const auto& one) {
    return one->alive() && std::ranges::none_of(roster, [&](const Worker& w) { return one->lives_as(w.id); });
  });
  inbox_.push_back(Adopted{static_cast<int>(outside)});
  for (const Worker& w : roster)
    if (!world_.worker_at(w.member.address)->lives_as(w.id)) inbox_.push_back(ProcessEnded{w.id, "gone when the coordinator came back"});
}

void SimCoordinator::crash() {
  world_.tell("coordinator crashes");
  const auto kept = world_.dice().below(being_written_.size() + 1);
  disk_.insert(disk_.end(), being_written_.begin(), being_written_.begin() + static_cast<std::ptrdiff_t>(kept));
  being_written_.clear();
  elastic_.reset();
  inbox_.clear();
  ++life_;
  for (const auto& [guest, connection] : connections_) world_.close(connection);
  connections_.clear();
}

void SimCoordinator::set_paused(bool paused) {
  paused_ = paused;
  if (!paused) work();
}

std::shared_ptr<Connection> SimCoordinator::accept(SimWorker& worker) {
  if (!alive()) return nullptr;
  auto connection = std::make_shared<Connection>();
  connection->guest = next_guest_++;
  connection->worker = &worker;
  connections_[connection->guest] = connection;
  return connection;
}

void SimCoordinator::hear(ElasticEvent event) {
  if (!alive()) return;
  inbox_.push_back(std::move(event));
  work();
}

void SimCoordinator::process_ended(WorkerId worker, std::string how) { hear(ProcessEnded{worker, std::move(how)}); }

void SimCoordinator::work() {
  while (alive() && !busy_ && !paused_ && !inbox_.empty()) {
    const ElasticEvent event = inbox_.front();
    inbox_.pop_front();
    if (const auto* ended = std::get_if<LinkEnded>(&event)) connections_.erase(ended->guest);
    commit(elastic_->handle(event, world_.time().now()));
  }
}

// Nothing else is looked at until the entries are on disk.
void SimCoordinator::commit(Decided decided) {
  if (decided.entries.empty()) {
    for (const auto& action : decided.actions) act(action);
    return;
  }
  being_written_ = encode_frame(decided.entries, frames_);
  busy_ = true;
  world_.time().after(world_.dice().uniform(0.001, 0.02), [this, life = life_, actions = std::move(decided.actions)] {
    if (life != life_) return;
    disk_.insert(disk_.end(), being_written_.begin(), being_written_.end());
    being_written_.clear();
    ++frames_;
    busy_ = false;
    const LogContent again = decode_log(disk_, "the simulated log");
    if (replay(again.entries) != elastic_->charter()) world_.fail("a replay of the log gives another charter");
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
  const double in = std::max(0.001, elastic_->next_tick() - world_.time().now());
  world_.time().after(in, [this, life = life_] {
    if (life == life_) tick();
  });
}

void SimCoordinator::to_worker(Guest guest, std::function<void(SimWorker&)> what) {
  const auto at = connections_.find(guest);
  if (at == connections_.end()) return;
  world_.send(at->second, false, [worker = at->second->worker, what = std::move(what)] { what(*worker); });
}

void SimCoordinator::act(const ElasticAction& action) {
  if (const auto* a = std::get_if<Seal>(&action))
    for (const Guest guest : a->guests) to_worker(guest, [s = *a](SimWorker& w) { w.on(s); });
  if (const auto* a = std::get_if<Begin>(&action)) to_worker(a->guest, [b = *a](SimWorker& w) { w.on(b); });
  if (const auto* a = std::get_if<Release>(&action)) to_worker(a->guest, [r = *a](SimWorker& w) { w.released(r); });
  if (const auto* a = std::get_if<Evict>(&action)) to_worker(a->guest, [](SimWorker& w) { w.evicted(); });
  if (const auto* a = std::get_if<Refuse>(&action)) to_worker(a->guest, [](SimWorker& w) { w.evicted(); });
  if (const auto* a = std::get_if<Say>(&action)) world_.tell("| " + a->text);
  if (const auto* a = std::get_if<Respawn>(&action))
    for (int i = 0; i < a->count; ++i)
      world_.time().after(world_.dice().uniform(0.05, 0.5), [this] {
        world_.spawn(static_cast<int>(world_.dice().below(static_cast<std::uint64_t>(world_.scenario().hosts))));
      });
  if (const auto* a = std::get_if<Stop>(&action)) {
    if (elastic_->over() && !over_) {
      over_ = true;
      error_ = a->error;
    }
    for (const Guest guest : a->guests) to_worker(guest, [](SimWorker& w) { w.exit("stopped"); });
  }
}

}  // namespace cohort::membership
