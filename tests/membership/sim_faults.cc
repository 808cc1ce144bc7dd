// The nemesis: one fault at a time, chosen and timed by the random generator. Every fault but a death is undone after a while.
#include <fmt/format.h>

#include <numeric>

#include "sim_coordinator.h"
#include "sim_worker.h"

namespace cohort::membership {
namespace {

SimWorker* any_worker(Simulation& world) {
  std::vector<SimWorker*> living;
  for (const auto& w : world.workers())
    if (w->alive()) living.push_back(w.get());
  return living.empty() ? nullptr : living[world.rng().below(living.size())];
}

void kill(Simulation& world) {
  const bool many = world.chance(0.15);
  for (int i = 0; i < (many ? 3 : 1); ++i) {
    SimWorker* w = any_worker(world);
    if (w == nullptr) return;
    world.log(fmt::format("FAULT kill {}", w->address()));
    w->kill();
  }
}

void pause(Simulation& world) {
  SimWorker* w = any_worker(world);
  if (w == nullptr) return;
  const double span = world.chance(0.5) ? world.rng().uniform(0.1, 1.5) : world.rng().uniform(1.5, 8);
  world.log(fmt::format("FAULT pause {} for {:.2f} s", w->address(), span));
  w->set_paused(true);
  world.time().after(span, [w] { w->set_paused(false); });
}

void partition(Simulation& world, std::set<std::pair<int, int>>& blocked) {
  const int hosts = world.scenario().hosts;
  const auto side = world.rng().below((1u << hosts) - 2) + 1;  // not empty, not all
  const bool one_way = world.chance(0.3);
  std::vector<std::pair<int, int>> added;
  for (int a = 0; a < hosts; ++a)
    for (int b = 0; b < hosts; ++b) {
      const bool a_in = ((side >> a) & 1) != 0, b_in = ((side >> b) & 1) != 0;
      if ((one_way ? a_in && !b_in : a_in != b_in) && blocked.emplace(a, b).second) added.emplace_back(a, b);
    }
  const double span = world.chance(0.5) ? world.rng().uniform(0.1, 1.5) : world.rng().uniform(1.5, 7);
  world.log(fmt::format("FAULT partition {:b}{} for {:.2f} s", side, one_way ? " one way" : "", span));
  world.time().after(span, [&blocked, added] {
    for (const auto& link : added) blocked.erase(link);
  });
}

void fault_coordinator(Simulation& world) {
  if (!world.coordinator().alive() || world.coordinator().over()) return;
  if (world.chance(0.3)) {
    world.log("FAULT pause coordinator");
    world.coordinator().set_paused(true);
    world.time().after(world.rng().uniform(0.2, 6), [&world] { world.coordinator().set_paused(false); });
    return;
  }
  world.log("FAULT kill coordinator");
  world.coordinator().crash();
}

void leave(Simulation& world) {
  SimWorker* w = any_worker(world);
  if (w == nullptr) return;
  world.log(fmt::format("FAULT {} is to be preempted", w->address()));
  w->leave();
}

void cut(Simulation& world) {
  SimWorker* w = any_worker(world);
  if (w == nullptr) return;
  world.log(fmt::format("FAULT cut {}'s connection", w->address()));
  w->cut();
}

}  // namespace

void Simulation::next_fault() {
  if (faults_over_ || coordinator_->over()) return;
  ++outcome_.faults;
  const auto& weights = scenario_.weights;
  auto draw = static_cast<int>(rng_.below(static_cast<std::uint64_t>(std::accumulate(weights.begin(), weights.end(), 0))));
  std::size_t which = 0;
  while (draw >= weights[which]) draw -= weights[which++];
  switch (which) {
    case 0: kill(*this); break;
    case 1: pause(*this); break;
    case 2: partition(*this, blocked_); break;
    case 3: fault_coordinator(*this); break;
    case 4: leave(*this); break;
    case 5: spawn(static_cast<int>(rng_.below(static_cast<std::uint64_t>(scenario_.hosts)))); break;
    default: cut(*this);
  }
  time_.after(rng_.uniform(0, 2 * scenario_.faults_every), [this] { next_fault(); });
}

void Simulation::heal_everything() {
  log("faults are over");
  blocked_.clear();
  for (const auto& w : workers_) w->set_paused(false);
  if (coordinator_->alive()) coordinator_->set_paused(false);
}

}  // namespace cohort::membership
