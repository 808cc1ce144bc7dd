// Waits for enough workers, then forms the next epoch and announces it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/elastic/membership.h"

namespace cohort::elastic {

std::string Membership::reason_to_wait(const Plan& plan) const {
  const int size = static_cast<int>(plan.members.size());
  const bool first = coordinator_state_.epoch.value == 0;
  if (size < rules_.min_workers && !(size > 0 && only_saves(plan)))
    return fmt::format("{} of at least {} workers", size, rules_.min_workers);
  if (first && size < rules_.target_workers && now_ - waiting_since_.value_or(now_) < rules_.start_grace)
    return fmt::format("{} of {} workers have joined; after {:g} s {} are enough", size, rules_.target_workers, rules_.start_grace,
                       rules_.min_workers);
  if (!first && plan.holders == 0 && being_saved())
    return fmt::format("the state of membership epoch {} is being saved", coordinator_state_.epoch.value);
  if (!first && plan.holders == 0 && state_may_return() && now_ - stateless_since_.value_or(now_) < rules_.state_timeout)
    return fmt::format("no reachable worker has the state of membership epoch {}; after {:g} s the newest checkpoint is read",
                       coordinator_state_.epoch.value, rules_.state_timeout);
  if (first || rules_.quorum == Quorum::minimum) return "";
  std::size_t of = 0, reachable = 0;
  for (const WorkerRecord* w : members()) {
    const bool here = w->presence == Presence::here;  // one that leaves counts until it has left
    of += here || (!w->leaving && !coordinator_state_.gone.contains(w->worker.id)) ? 1 : 0;
    reachable += here ? 1 : 0;
  }
  if (of == 0 || 2 * reachable > of) return "";
  return fmt::format("{} of the {} workers of membership epoch {} are reachable, which is no majority", reachable, of,
                     coordinator_state_.epoch.value);
}

void Membership::try_to_form() {
  if (coordinator_state_.epoch.value > 0 && !fenced())
    return wait(
        fmt::format("no worker of membership epoch {} is reachable, and not all are known to have ended: they may still be training",
                    coordinator_state_.epoch.value));
  const Plan plan = plan_next();
  if (plan.holders == 0 && (!stateless_since_ || being_saved())) stateless_since_ = now_;  // the limit runs from its last heartbeat
  if (plan.holders > 0) stateless_since_.reset();
  if (coordinator_state_.epoch.value == 0 && !plan.members.empty()) start_waiting();
  const std::string why = reason_to_wait(plan);
  if (why.empty()) return form(plan);
  release_leavers(plan);
  wait(why);
}

// Finishing a prepared step alone makes it count: right when this epoch begins with it, or when all that may return can finish it, too.
bool Membership::may_finish_step(const WorkerRecord& leaver) const {
  const WorkerProgress& mine = *leaver.worker_progress;
  if (!mine.prepared) return false;
  if (mine.epoch != coordinator_state_.epoch) return *coordinator_state_.base > mine.applied;
  return std::ranges::all_of(members(), [&](const WorkerRecord* w) {
    const bool reported = w->presence == Presence::here && w->reported;
    if (!reported) return coordinator_state_.gone.contains(w->worker.id);
    const auto worker_progress = effective(*w);
    return !worker_progress || worker_progress->reach() >= mine.reach();
  });
}

// A change that must wait does not delay leavers, unless they have to transfer their state to a worker that is here.
void Membership::release_leavers(const Plan& plan) {
  const auto with_state = holders({});
  auto staying = with_state;
  std::erase_if(staying, &WorkerRecord::leaving);
  const bool worth_saving = covered(with_state) && !covered(staying) && !on_disk();  // an incomplete state is worth nothing
  bool written = std::ranges::any_of(members(), &WorkerRecord::saving);              // one writes for all
  std::vector<WorkerRecord*> leavers;
  for (auto& [id, record] : workers_) {
    if (!record.leaving || !record.connection_id || !record.reported || record.saving || record.presence != Presence::here) continue;
    const bool needed = worth_saving && effective(record);
    if (needed && !plan.members.empty()) continue;
    record.saving = needed && !written;
    record.finishes = record.saving && may_finish_step(record);
    written = written || record.saving;
    leavers.push_back(&record);
  }
  for (WorkerRecord* w : leavers) {
    w->presence = Presence::lost;
    out_.actions.push_back(Release{*w->connection_id, w->saving, w->finishes});
    if (!w->saving) w->connection_id.reset();
  }
}

// Workers need a moment to start: that is not logged.
void Membership::start_waiting() {
  constexpr double kStart = 3;
  if (waiting_since_) return;
  waiting_since_ = now_;
  warn_at_ = now_ + (coordinator_state_.epoch.value == 0 ? std::min(kStart, rules_.wait_limit) : 0);
}

void Membership::wait(const std::string& why) {
  start_waiting();
  const double waited = now_ - *waiting_since_;
  if (waited >= rules_.wait_limit) return give_up(Kind::timeout, fmt::format("waited {:g} s: {}", rules_.wait_limit, why));
  if (now_ < warn_at_) return;
  warn_at_ = now_ + rules_.warn_every;
  say(fmt::format("waiting ({:.0f} s of {:g} s): {}", waited, rules_.wait_limit, why), true);
}

std::string Membership::describe(const Plan& plan) const {
  const auto epoch = coordinator_state_.epoch.value;
  const std::size_t size = plan.members.size(), fresh = size - plan.holders;
  if (epoch == 1) return fmt::format("membership epoch 1: {} workers", size);
  if (!plan.base)
    return fmt::format("membership epoch {}: {} workers, from the newest checkpoint: no remaining worker has the state", epoch, size);
  const std::string healed = fresh == 0 ? "" : fmt::format(", {} of them with the state of a peer", fresh);
  return fmt::format("membership epoch {}: {} workers continue after step {}{}", epoch, size, *plan.base, healed);
}

// Gives up where no right epoch can follow.
bool Membership::may_form(const Plan& plan) {
  for (const WorkerRecord* w : holders(plan.excluded)) {
    if (!plan.base || effective(*w)->applied <= *plan.base) continue;
    give_up(
        Kind::bug,
        fmt::format(
            "{} has applied step {}, but another member was never prepared beyond step {}: the workers of membership epoch {} broke the "
            "protocol",
            name(*w), effective(*w)->applied, *plan.base, coordinator_state_.epoch.value),
        *coordinator_state_.rank_of(w->worker.id));
    return false;
  }
  broken_in_a_row_ = broke_before_settled() ? broken_in_a_row_ + 1 : 0;
  if (broken_in_a_row_ > 0 && !waiting_since_) waiting_since_ = now_;  // until one of them settles
  if (broken_in_a_row_ == 0 || now_ - *waiting_since_ < rules_.wait_limit) return true;
  give_up(Kind::timeout, fmt::format("for {:g} s its workers could not all reach each other, {} membership epochs in a row",
                                     rules_.wait_limit, broken_in_a_row_));
  return false;
}

void Membership::form(const Plan& plan) {
  if (!may_form(plan)) return;
  admission_delay_ = leaves_out_living(plan) ? rules_.cool_down * std::pow(2, std::min(exclusions_++, 6)) : 0;
  if (admission_delay_ > 0) admit_after_ = now_ + admission_delay_;  // and again from when it has settled
  Formed formed{Epoch{coordinator_state_.epoch.value + 1}, plan.base, {}, static_cast<std::uint32_t>(plan.holders)};
  for (const WorkerRecord* w : plan.members) {
    formed.roster.push_back(w->worker);
    formed.roster.back().member.rank = Rank{static_cast<std::int32_t>(formed.roster.size()) - 1};
  }
  std::set<WorkerId> before;
  for (const Worker& worker : coordinator_state_.roster) before.insert(worker.id);
  decide(formed);
  broken_links_.clear();
  stateless_since_.reset();
  sealing_ = Sealing::no;
  formed_at_ = now_;
  first_step_ = plan.base;
  committed_ = committed_ || plan.base.value_or(0) > 0;
  if (coordinator_state_.epoch.value == 1) {  // those of the first that are late: not replaced before they have had time to connect
    adopted_ += std::exchange(replacements_due_, 0);
    adopted_until_ = now_ + rules_.start_grace;
  }
  say(describe(plan));
  for (const Worker& worker : coordinator_state_.roster) {
    WorkerRecord& record = workers_.at(worker.id);
    record.worker = worker;
    record.settled = record.reported = record.stuck = false;
    record.worker_progress.reset();
    before.erase(worker.id);
    announce(record);
  }
  for (const WorkerId id : before) dismiss(workers_.at(id));
}

void Membership::announce(const WorkerRecord& record) {
  group::Roster roster{rules_.job, coordinator_state_.epoch, {}};
  for (const Worker& worker : coordinator_state_.roster) roster.members.push_back(worker.member);
  const Rank rank = *coordinator_state_.rank_of(record.worker.id);
  out_.actions.push_back(BeginEpoch{*record.connection_id, coordinator_state_.term, std::move(roster), rank, coordinator_state_.base,
                                    coordinator_state_.heal_source(rank)});
}

// It was a member of the last epoch and is not of this one.
void Membership::dismiss(const WorkerRecord& record) {
  const bool leaving = record.leaving;
  if (record.connection_id && record.leaving && record.reported)
    out_.actions.push_back(Release{*record.connection_id});
  else if (record.connection_id)
    evict(*record.connection_id, record.worker,
          fmt::format("job '{}' continues in membership epoch {} without {}; it may join as new", rules_.job,
                      coordinator_state_.epoch.value, name(record)));
  workers_.erase(record.worker.id);
  if (leaving) count_left(1);
}

}  // namespace cohort::elastic
