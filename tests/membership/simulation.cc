#include "simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "sim_coordinator.h"
#include "sim_worker.h"

namespace cohort::membership {
namespace {
constexpr double kGiveUpAfter = 3;  // of a connection whose bytes are not delivered
constexpr double kLimit = 400;      // virtual seconds: by then a job without faults has long ended
constexpr std::uint64_t kMaxEvents = 2'000'000;
}  // namespace

Simulation::Simulation(Scenario scenario) : scenario_(std::move(scenario)), rng_(scenario_.seed) {}
Simulation::~Simulation() = default;

void Simulation::log(const std::string& what) {
  if (scenario_.trace) std::printf("%9.4f  %s\n", time_.now(), what.c_str());
}

void Simulation::fail(const std::string& why) {
  if (outcome_.failure.empty()) outcome_.failure = fmt::format("at {:.3f} s: {}", time_.now(), why);
}

void Simulation::write(HistoryLine line) {
  if (line.event == HistoryLine::Event::commit) {
    outcome_.longest_gap = std::max(outcome_.longest_gap, time_.now() - last_commit_);
    last_commit_ = time_.now();
    log(fmt::format("rank {} commits step {} in epoch {}: {}", line.rank.value, line.step, line.epoch.value, line.hash));
  }
  if (line.event == HistoryLine::Event::restart) {
    outcome_.restarts_from_disk += line.epoch.value > 1 ? 1 : 0;
    for (const auto& w : workers_)
      if (w->holds_later_than(line.epoch, line.step))
        fail(fmt::format("epoch {} starts from disk, and {} is alive with a later state", line.epoch.value, w->address()));
  }
  history_.push_back(std::move(line));
}

SimWorker& Simulation::spawn(int host) {
  workers_.push_back(std::make_unique<SimWorker>(*this, host, static_cast<int>(workers_.size())));
  log(fmt::format("w{} starts on host {}", workers_.size() - 1, host));
  workers_.back()->start();
  return *workers_.back();
}

SimWorker* Simulation::worker_at(const std::string& address) const { return workers_.at(std::stoul(address.substr(1))).get(); }

int Simulation::alive() const {
  return static_cast<int>(std::ranges::count_if(workers_, [](const auto& w) { return w->alive(); }));
}

void Simulation::send(const std::shared_ptr<Connection>& c, bool up, std::function<void()> what) {
  auto& d = up ? c->up : c->down;
  d.queue.push_back(std::move(what));
  if (std::exchange(d.pumping, true)) return;
  time_.after(delay(), [this, c, up] { pump(c, up); });
}

void Simulation::pump(const std::shared_ptr<Connection>& c, bool up) {
  auto& d = up ? c->up : c->down;
  const int host = c->worker->host();
  const bool stuck = up ? blocked(host, SimCoordinator::kHost) : blocked(SimCoordinator::kHost, host);
  if (!c->open) {
    d.queue.clear();
    return;
  }
  if (stuck && d.stuck_since < 0) d.stuck_since = time_.now();
  if (!stuck) d.stuck_since = -1;
  if (stuck && time_.now() - d.stuck_since > kGiveUpAfter) return close(c);
  if (stuck || (!up && c->worker->paused())) return time_.after(0.05, [this, c, up] { pump(c, up); });
  const auto what = std::move(d.queue.front());
  d.queue.pop_front();
  d.pumping = !d.queue.empty();
  if (d.pumping) time_.after(delay(), [this, c, up] { pump(c, up); });
  if (up || c->worker->alive()) what();
}

void Simulation::close(const std::shared_ptr<Connection>& c) {
  if (!std::exchange(c->open, false)) return;
  // Each side sees the end by itself: at once when the network delivers it, else after its own timeout.
  const int host = c->worker->host();
  const auto when = [&](int from, int to) { return blocked(from, to) ? rng_.uniform(0.5, kGiveUpAfter) : delay(); };
  time_.after(when(host, SimCoordinator::kHost), [this, c] { coordinator_->receive(elastic::LinkEnded{c->connection_id}); });
  c->worker->after(when(SimCoordinator::kHost, host), [c] {
    if (c->worker->connection() == c) c->worker->disconnected();
  });
}

void Simulation::post(SimWorker& from, SimWorker& to, std::function<void()> what) {
  time_.after(delay(), [this, &from, &to, what = std::move(what)]() mutable { deliver(from, to, std::move(what), 0); });
}

void Simulation::deliver(SimWorker& from, SimWorker& to, std::function<void()> what, int tries) {
  if (!to.alive()) return;
  if (tries > 200) return;  // ten seconds: the connection has failed by then
  if (to.paused() || blocked(from.host(), to.host()))
    return time_.after(0.05,
                       [this, &from, &to, what = std::move(what), tries]() mutable { deliver(from, to, std::move(what), tries + 1); });
  what();
}

// A service manager: restarts the coordinator, and replaces lost workers when faults are over.
void Simulation::supervise() {
  if (!coordinator_->alive() && !coordinator_->over()) coordinator_->start();
  if (faults_over_ && alive() < scenario_.rules.min_workers && !coordinator_->over()) spawn(0);
  if (!coordinator_->over()) time_.after(rng_.uniform(0.3, 1.5), [this] { supervise(); });
}

Outcome Simulation::run() {
  coordinator_ = std::make_unique<SimCoordinator>(*this);
  coordinator_->start();
  for (int i = 0; i < scenario_.workers; ++i) spawn(i % scenario_.hosts);
  supervise();
  time_.after(rng_.uniform(0, scenario_.faults_every), [this] { next_fault(); });
  time_.after(scenario_.faults_until, [this] {
    faults_over_ = true;
    heal_everything();
  });
  try {
    while (outcome_.failure.empty() && !coordinator_->over() && time_.now() < kLimit && time_.events() < kMaxEvents && time_.step()) {
    }
  } catch (const std::exception& e) {
    fail(e.what());
  }
  if (outcome_.failure.empty()) outcome_.failure = check();
  outcome_.ended_at = time_.now();
  outcome_.events = time_.events();
  return outcome_;
}

// So many members of an epoch ended unseen that they might be training behind a partition: only to give up is safe.
bool Simulation::state_is_unknowable() const {
  if (scenario_.launcher_sees_exits || coordinator_->error()->kind != Kind::timeout) return false;
  const auto& roster = coordinator_->coordinator_state()->roster;
  const auto living = std::ranges::count_if(roster, [&](const elastic::Worker& w) { return worker_at(w.member.address)->runs_as(w.id); });
  const bool no_majority = scenario_.rules.quorum == elastic::Quorum::majority && 2 * living <= std::ssize(roster);
  return living == 0 || no_majority;
}

std::string Simulation::check() {
  if (const auto* coordinator_state = coordinator_->coordinator_state()) outcome_.epochs = static_cast<int>(coordinator_state->epoch.value);
  const auto violations = elastic::judge(history_);
  if (!violations.empty()) return fmt::format("{}: {} ({} in all)", violations[0].promise, violations[0].what, violations.size());
  if (!coordinator_->over()) return fmt::format("the job did not end within {:.0f} s and {} events", time_.now(), time_.events());
  if (coordinator_->error() && state_is_unknowable()) return "";
  if (coordinator_->error()) return "the job gave up: " + coordinator_->error()->what;
  return "";
}

}  // namespace cohort::membership
