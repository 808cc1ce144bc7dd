// Hosts of an elastic job: each is independent of the others.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/remote_ranks.h"

namespace cohort::launch {
namespace {

constexpr int kMaxDoublings = 6;  // of the time for which a host that is lost again and again is not used

}  // namespace

void RemoteRanks::start_elastic() {
  for (const auto& host : plan_.pool) hosts_.push_back({.name = host.name, .slots = host.slots});
  for (const group::HostShare& share : plan_.hosts) {
    const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& h) { return h.name == share.name; });
    for (int i = 0; i < share.ranks; ++i) place_worker(*host);
    start_agent(*host, true);
  }
}

int RemoteRanks::place_worker(Host& host) {
  const PlacedRank placed{first_ + size(), first_free_slot(host)};
  ranks_.push_back({-1, std::nullopt, host.name});
  host.ranks.push_back(placed);
  return placed.rank;
}

int RemoteRanks::add() {
  Host& host = hosts_[*host_with_free_slot()];
  const int number = place_worker(host);
  if (host.stage == Stage::started) send_start(host, host.ranks.back());
  if (host.stage != Stage::over) return number;  // a host that is not ready starts it when it is
  try {
    start_agent(host, true);
  } catch (...) {  // there is no such worker
    host.ranks.pop_back();
    ranks_.pop_back();
    throw;
  }
  return number;
}

void RemoteRanks::start_workers(Host& host) {
  AgentStart order = plan_.start;
  order.hosts = {{host.name, 0, host.slots}};
  order.setting.master_addr = host.ready.address;
  order.setting.master_port = host.ready.master_port;
  host.channel.send(AgentFrame::start, encode(order));
  host.stage = Stage::started;
  host.began = Clock::now();
  for (const PlacedRank& placed : host.ranks)
    if (state(placed.rank).running()) send_start(host, placed);
}

void RemoteRanks::send_start(Host& host, const PlacedRank& placed) {
  host.channel.send(AgentFrame::start_worker, encode(AgentStartWorker{placed.rank, placed.slot}));
}

void RemoteRanks::take_worker_started(const Host& host, const std::vector<int>& numbers) {
  check_rank(host, numbers[0]);
  state(numbers[0]).pid = numbers[1];
  verbose_.push_back(fmt::format("worker {} is process {} on host {}", numbers[0], numbers[1], host.name));
}

void RemoteRanks::take_worker_failed(Host& host, const AgentWorkerFailed& failed) {
  check_rank(host, failed.number);
  state(failed.number).status = W_EXITCODE(kExitNotFound, 0);
  ends_.push_back({failed.number, W_EXITCODE(kExitNotFound, 0), failed.why, false});  // it never ran: no error of its own
  const Seconds span = back_off(host);
  messages_.push_back(
      fmt::format("host '{}' cannot start a worker: {}; it is not used for {}", host.name, failed.why, format_seconds(span)));
}

void RemoteRanks::on_host_lost(Host& host, const std::string& what) {
  const int with_it = used_slots(host);
  const auto idle = [](const Host& h) { return h.stage == Stage::over; };
  const bool nobody_ever = std::all_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.began == Clock::time_point{}; });
  if (nobody_ever && std::all_of(hosts_.begin(), hosts_.end(), idle) && !host_failure_) {
    host_failure_ = HostFailure{kExitFailure, fmt::format("host '{}' {}; none is left", host.name, what)};
    return;
  }
  if (host.leaving) return messages_.push_back(fmt::format("host '{}' {}", host.name, what));
  const Seconds span = back_off(host);
  messages_.push_back(fmt::format("host '{}' {}; it had {} worker{} and is not used for {}", host.name, what, with_it,
                                  with_it == 1 ? "" : "s", format_seconds(span)));
}

// Twice as long each time; a host that worked for longer than it was last not used begins anew.
Seconds RemoteRanks::back_off(Host& host) {
  const auto span = [&] { return plan_.cool_down * std::pow(2, std::min(host.losses - 1, kMaxDoublings)); };
  if (host.losses > 0 && host.began != Clock::time_point{} && Clock::now() - host.began > span()) host.losses = 0;
  ++host.losses;
  host.back_off_until = Deadline::in(span());
  return span();
}

int RemoteRanks::used_slots(const Host& host) const {
  return static_cast<int>(
      std::count_if(host.ranks.begin(), host.ranks.end(), [&](const PlacedRank& p) { return (*this)[p.rank].running(); }));
}

int RemoteRanks::first_free_slot(const Host& host) const {
  for (int slot = 0;; ++slot)
    if (std::none_of(host.ranks.begin(), host.ranks.end(),
                     [&](const PlacedRank& p) { return p.slot == slot && (*this)[p.rank].running(); }))
      return slot;
}

bool RemoteRanks::usable(const Host& host) const {
  return !host.leaving && (host.back_off_until.never() || host.back_off_until.passed()) && used_slots(host) < host.slots;
}

// One with an agent before one that needs a new one.
std::optional<std::size_t> RemoteRanks::host_with_free_slot() const {
  std::optional<std::size_t> found;
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    if (!usable(hosts_[h])) continue;
    if (hosts_[h].stage != Stage::over) return h;
    if (!found) found = h;
  }
  return found;
}

bool RemoteRanks::has_free_slot() const { return host_with_free_slot().has_value(); }

int RemoteRanks::set_pool(const group::Hosts& pool) {
  int came = 0;
  for (Host& h : hosts_) {
    const auto listed = std::find_if(pool.begin(), pool.end(), [&](const group::HostSlots& p) { return p.name == h.name; });
    if (listed == pool.end()) h.left_by_itself = false;
    if (listed != pool.end() && h.left_by_itself) continue;  // the list does not know yet that it leaves
    if (listed != pool.end()) {
      came += std::max(0, listed->slots - (h.leaving ? 0 : h.slots));
      h.slots = listed->slots;
      if (std::exchange(h.leaving, false)) messages_.push_back(fmt::format("host '{}' is back, with {} slots", h.name, h.slots));
    } else if (!h.leaving) {
      ask_to_leave(h);
    }
  }
  for (const group::HostSlots& p : pool) {
    if (std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& h) { return h.name == p.name; })) continue;
    messages_.push_back(fmt::format("host '{}' has come, with {} slot{}", p.name, p.slots, p.slots == 1 ? "" : "s"));
    hosts_.push_back({.name = p.name, .slots = p.slots});
    came += p.slots;
  }
  return came;
}

// As after a preemption notice.
void RemoteRanks::ask_to_leave(Host& host) {
  const int with_it = used_slots(host);
  host.leaving = true;
  host.leave_by = Deadline::in(plan_.leave_grace);
  messages_.push_back(fmt::format("host '{}' is no longer there for this job: its {} worker{} leave{}", host.name, with_it,
                                  with_it == 1 ? "" : "s", with_it == 1 ? "s" : ""));
  if (host.stage == Stage::started)
    host.channel.send(AgentFrame::signal, encode(std::vector<int>{SIGTERM}));
  else
    give_up(host, kExitFailure, "it was taken away before it was ready");
}

// An agent without workers on a host that is not ours any more goes; workers that stay too long are killed.
void RemoteRanks::end_leaving_hosts() {
  for (Host& h : hosts_) {
    if (!h.leaving || h.stage != Stage::started) continue;
    if (used_slots(h) == 0) {
      h.channel.close();
      h.stage = Stage::over;
      h.leave_by = {};
    } else if (h.leave_by.passed()) {
      h.leave_by = {};
      h.channel.send(AgentFrame::signal, encode(std::vector<int>{SIGKILL}));
    }
  }
}

std::vector<std::string> RemoteRanks::take_messages() { return std::exchange(messages_, {}); }

}  // namespace cohort::launch
