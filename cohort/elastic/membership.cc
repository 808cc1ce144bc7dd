#include "cohort/elastic/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cohort::elastic {
namespace {

void check(const ElasticRules& r) {
  if (r.min_workers < 1 || r.max_workers < r.min_workers || r.target_workers < r.min_workers || r.target_workers > r.max_workers)
    throw_failure(Kind::usage, "{} workers of at least {} and at most {}: needs 1 <= min <= n <= max", r.target_workers, r.min_workers,
                  r.max_workers);
  if (r.respawns < 0 || r.heartbeat <= 0)
    throw_failure(Kind::usage, "{} respawns and a heartbeat of {} s are impossible", r.respawns, r.heartbeat);
}

}  // namespace

Membership::Membership(ElasticRules rules, CoordinatorState coordinator_state, double now)
    : rules_(std::move(rules)), coordinator_state_(std::move(coordinator_state)), now_(now) {
  check(rules_);
  formed_at_ = now;
  if (coordinator_state_.epoch.value == 0) replacements_due_ = rules_.target_workers;
  committed_ = coordinator_state_.base.value_or(0) > 0;
  for (const Worker& worker : coordinator_state_.roster) {
    WorkerRecord& record = workers_[worker.id];
    record.worker = worker;
    record.presence = coordinator_state_.gone.contains(worker.id) ? Presence::lost : Presence::away;
    record.until = now + rules_.rejoin_limit;
  }
}

Decided Membership::open(double now) {
  out_ = {};
  now_ = now;
  decide(Opened{coordinator_state_.term + 1});
  if (coordinator_state_.epoch.value > 0)
    say(fmt::format("the coordinator of '{}' was restarted, term {}: it waits {:g} s for the {} workers of membership epoch {}", rules_.job,
                    coordinator_state_.term, rules_.rejoin_limit, coordinator_state_.roster.size(), coordinator_state_.epoch.value));
  return std::exchange(out_, {});
}

Decided Membership::handle(const ElasticEvent& event, double now) {
  out_ = {};
  if (now - now_ > rules_.lost_after() / 2) extend_deadlines(now - now_);
  now_ = std::max(now_, now);
  std::visit([this](const auto& e) { on(e); }, event);
  consider();
  return std::exchange(out_, {});
}

// Ticks are due every heartbeat, so this process was suspended. It could receive nothing meanwhile: no deadline ran.
void Membership::extend_deadlines(double suspended) {
  for (auto& [id, record] : workers_) {
    record.last_heard += suspended;
    record.until += suspended;
  }
  sealed_at_ += suspended;
  formed_at_ += suspended;
}

// Any message shows that the worker is alive.
Membership::WorkerRecord* Membership::worker_of(group::ConnectionId connection_id) {
  for (auto& [id, record] : workers_) {
    if (record.connection_id != connection_id) continue;
    record.last_heard = now_;
    if (record.presence == Presence::silent) record.presence = Presence::here;
    return &record;
  }
  return nullptr;
}

std::string Membership::name(const WorkerRecord& record) const {
  const auto rank = coordinator_state_.rank_of(record.worker.id);
  const group::Member& m = record.worker.member;
  return rank ? fmt::format("rank {} (process {} on {})", rank->value, m.pid, m.host) : fmt::format("process {} on {}", m.pid, m.host);
}

void Membership::on(const Arrive& arrive) {
  if (rejects(arrive)) return;
  const auto expected_back = std::erase_if(returning_, [&](const auto& one) {
    return one.second.member.pid == arrive.worker.member.pid && one.second.member.host == arrive.worker.member.host;
  });
  if (was_replaced(arrive)) return;
  const bool is_new = !workers_.contains(arrive.worker.id);
  WorkerRecord& record = workers_[arrive.worker.id];
  record.connection_id = arrive.connection_id;
  record.last_heard = now_;
  if (is_new) {
    record.arrival = arrivals_++;
    if (expected_back == 0) count_arrival();
    count_left(0);
  }
  if (is_member(record)) return rejoin(record, arrive);
  record.worker = arrive.worker;
  if (coordinator_state_.epoch.value > 0 && static_cast<int>(coordinator_state_.roster.size()) >= rules_.max_workers)
    out_.actions.push_back(
        Say{fmt::format("{} waits: the job has its {} workers; it joins when one is lost", name(record), rules_.max_workers),
            {arrive.connection_id}});
}

bool Membership::rejects(const Arrive& arrive) {
  const group::ConnectionId connection_id = arrive.connection_id;
  if (over_) {
    out_.actions.push_back(Stop{{connection_id}, Error{Kind::aborted, fmt::format("job '{}' is over", rules_.job)}});
    return true;
  }
  if (arrive.epoch > coordinator_state_.epoch) {
    out_.actions.push_back(group::Refuse{
        connection_id,
        {Kind::corrupt,
         fmt::format("a worker was in membership epoch {} of job '{}', and the coordinator's log ends at membership epoch {}: it "
                     "was started with another log file",
                     arrive.epoch.value, rules_.job, coordinator_state_.epoch.value),
         kNoRank}});
    return true;
  }
  if (arrive.epoch.value == 0 || coordinator_state_.rank_of(arrive.worker.id)) return false;
  evict(connection_id, arrive.worker,
        fmt::format("membership epoch {} is over: job '{}' continues in membership epoch {} without this worker; it may join as new",
                    arrive.epoch.value, rules_.job, coordinator_state_.epoch.value));
  return true;
}

void Membership::evict(group::ConnectionId connection_id, const Worker& worker, const std::string& why) {
  evicted_.emplace(worker.member.host, worker.member.pid);
  if (const auto at = returning_.find(worker.id); at != returning_.end()) at->second.until = now_ + rules_.lost_after();
  out_.actions.push_back(Evict{connection_id, {Kind::peer_lost, why, kNoRank}});
}

// One that was evicted comes back as new, and finds that another has its place: there are never more processes than places.
bool Membership::was_replaced(const Arrive& arrive) {
  const group::Member& m = arrive.worker.member;
  if (workers_.contains(arrive.worker.id) || evicted_.erase({m.host, m.pid}) == 0) return false;
  if (replacements_due_ + adopted_ > 0 || headcount() + static_cast<int>(coordinator_state_.left) < rules_.target_workers) return false;
  say(fmt::format("process {} on {} is back after another took its place: it ends", m.pid, m.host));
  out_.actions.push_back(Release{arrive.connection_id});
  return true;
}

// A member whose connection or coordinator was lost. One that never received this epoch has not voted in it and is sent it now.
void Membership::rejoin(WorkerRecord& record, const Arrive& arrive) {
  const bool was_away = std::exchange(record.presence, Presence::here) == Presence::away;
  record.saving = false;  // it did not receive its release, or is still writing
  const bool in_epoch = arrive.epoch == coordinator_state_.epoch;
  if (in_epoch) record.settled = arrive.settled;
  if (in_epoch ? arrive.sealed : sealing_ != Sealing::no) {
    record.reported = true;
    record.worker_progress = arrive.worker_progress;
  } else if (!in_epoch) {
    announce(record);
  } else if (sealing_ != Sealing::no) {
    out_.actions.push_back(
        SealEpoch{{arrive.connection_id}, coordinator_state_.term, coordinator_state_.epoch, sealing_ == Sealing::at_once});
  }
  if (was_away && std::ranges::all_of(members(), [](const WorkerRecord* w) { return w->presence == Presence::here && !w->reported; }))
    say(fmt::format("all {} workers of membership epoch {} are back: training continues", coordinator_state_.roster.size(),
                    coordinator_state_.epoch.value));
}

void Membership::on(const Reported& report) {
  WorkerRecord* record = worker_of(report.connection_id);
  if (record == nullptr || report.epoch != coordinator_state_.epoch || !is_member(*record)) return;
  record->presence = Presence::here;
  record->reported = true;
  record->worker_progress = report.worker_progress;
  if (first_step_ && report.worker_progress) committed_ = committed_ || report.worker_progress->applied > *first_step_;
}

void Membership::on(const Settled& e) {
  WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr || e.epoch != coordinator_state_.epoch || !is_member(*record)) return;
  record->settled = true;
  if (!first_step_) first_step_ = e.step;
  committed_ = committed_ || e.step > *first_step_;
  if (!settled()) return;
  waiting_since_.reset();
  if (broken_links_.empty()) broken_in_a_row_ = 0;
  if (formed_at_ >= admit_after_) exclusions_ = 0;
  if (admission_delay_ > 0) admit_after_ = now_ + std::exchange(admission_delay_, 0);
}

void Membership::on(const PeerUnreachable& e) {
  const WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr || e.epoch != coordinator_state_.epoch || !is_member(*record)) return;
  if (e.about.value < 0 || static_cast<std::size_t>(e.about.value) >= coordinator_state_.roster.size()) return;
  const WorkerId about = coordinator_state_.roster[static_cast<std::size_t>(e.about.value)].id;
  if (about != record->worker.id) broken_links_.emplace(record->worker.id, about);
}

void Membership::on(const Leaving& e) {
  WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr) return;
  say(fmt::format("{} leaves: {}", name(*record), e.why));
  record->leaving = true;
  if (is_member(*record)) return;
  out_.actions.push_back(Release{e.connection_id});
  workers_.erase(record->worker.id);
  count_left(1);
}

void Membership::on(const Ended& e) {
  WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr || !is_member(*record)) return;
  record->ended = true;
  if (!coordinator_state_.finished) decide(Finished{e.step});
}

void Membership::on(const StateTransferred& e) {
  WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr || e.epoch != coordinator_state_.epoch || !is_member(*record)) return;
  if (e.to != kNoRank && (!e.to || e.to.value >= static_cast<int>(coordinator_state_.roster.size()))) return;
  if (!e.to && !saves_all(*record)) return;
  const auto at = coordinator_state_.transferred.find(record->worker.id);
  if (at == coordinator_state_.transferred.end() || at->second != e.to) decide(ShardTransferred{record->worker.id, e.to});
}

void Membership::on(const JobFailed& e) {
  const WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr || !is_member(*record) || over_) return;
  give_up(e.error.kind, e.error.what, e.error.rank);
}

void Membership::on(const LinkEnded& e) {
  WorkerRecord* record = worker_of(e.connection_id);
  if (record == nullptr) return;
  record->connection_id.reset();
  record->saving = false;
  const bool expected = !record->leaving && !record->ended && !coordinator_state_.gone.contains(record->worker.id);
  if (expected) returning_[record->worker.id] = {record->worker.member, now_ + rules_.lost_after()};
  if (is_member(*record))
    mark_lost(*record, "its connection ended");
  else
    workers_.erase(record->worker.id);
}

void Membership::on(const ProcessEnded& e) {
  returning_.erase(e.worker);
  const auto at = workers_.find(e.worker);
  if (at == workers_.end()) return;
  evicted_.erase({at->second.worker.member.host, at->second.worker.member.pid});
  if (!is_member(at->second)) {
    workers_.erase(at);
    return;
  }
  if (!coordinator_state_.gone.contains(e.worker)) decide(Gone{e.worker});
  at->second.saving = false;
  mark_lost(at->second, e.how);
}

// One fewer is expected.
void Membership::count_arrival() {
  int& which = adopted_ > 0 ? adopted_ : replacements_due_;
  which = std::max(0, which - 1);
}

// They are not replaced before they have had time to connect. One of them may be a stopped process that was evicted.
void Membership::on(const Adopted& e) {
  adopted_ = e.count;
  replacements_due_ = e.pending;
  adopted_until_ = now_ + rules_.start_grace;
}

void Membership::on(const SpawnFailed& e) {
  count_arrival();
  say(fmt::format("a worker did not join: {}", e.why));
}

void Membership::on(const Tick&) {}

void Membership::mark_lost(WorkerRecord& record, const std::string& why) {
  if (record.presence != Presence::lost && record.presence != Presence::silent && !record.ended)
    say(fmt::format("{} is lost: {}", name(record), why));
  record.presence = Presence::lost;
}

void Membership::check_heartbeats() {
  std::vector<WorkerId> silent_newcomers;
  for (auto& [id, record] : workers_) {
    if (record.presence == Presence::away && now_ >= record.until)
      mark_lost(record, fmt::format("it did not reconnect within {:g} s", rules_.rejoin_limit));
    if (record.presence != Presence::here || now_ - record.last_heard < rules_.lost_after()) continue;
    if (!is_member(record)) {
      silent_newcomers.push_back(id);
      continue;
    }
    mark_lost(record, fmt::format("no heartbeat for {:g} s", rules_.lost_after()));
    record.presence = Presence::silent;
  }
  for (const WorkerId id : silent_newcomers) {  // not yet members: the epoch is not affected
    const WorkerRecord& record = workers_.at(id);
    evicted_.emplace(record.worker.member.host, record.worker.member.pid);
    out_.actions.push_back(group::Refuse{
        *record.connection_id, {Kind::timeout, fmt::format("{}: no heartbeat for {:g} s", name(record), rules_.lost_after()), kNoRank}});
    workers_.erase(id);
  }
}

bool Membership::settled() const {
  return std::ranges::all_of(coordinator_state_.roster, [&](const Worker& w) { return workers_.at(w.id).settled; });
}

double Membership::next_tick() const {
  double at = now_ + rules_.heartbeat;
  const auto due = [&](double when) {
    if (when > now_) at = std::min(at, when);
  };
  for (const auto& [id, record] : workers_) {
    if (record.presence == Presence::here) due(record.last_heard + rules_.lost_after());
    if (record.presence == Presence::away) due(record.until);
  }
  if (sealing_ == Sealing::at_once) due(sealed_at_ + rules_.report_limit);
  if (waiting_since_) due(std::min(warn_at_, *waiting_since_ + rules_.wait_limit));
  if (admit_after_ > now_) due(admit_after_);
  for (const auto& [id, one] : returning_) due(one.until);
  return at;
}

void Membership::decide(const Entry& entry) {
  apply(coordinator_state_, entry);
  out_.entries.push_back(entry);
}

std::vector<group::ConnectionId> Membership::connection_ids() const {
  std::vector<group::ConnectionId> all;
  for (const auto& [id, record] : workers_)
    if (record.connection_id) all.push_back(*record.connection_id);
  return all;
}

void Membership::say(std::string text, bool to_all) {
  out_.actions.push_back(Say{std::move(text), to_all ? connection_ids() : std::vector<group::ConnectionId>{}});
}

}  // namespace cohort::elastic
