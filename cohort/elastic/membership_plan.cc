// Who is in the next epoch, and which state it begins with. docs/adr/0009-membership.md has the argument why this is safe.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/elastic/membership.h"

namespace cohort::elastic {

std::vector<const Membership::WorkerRecord*> Membership::members() const {
  std::vector<const WorkerRecord*> all;
  for (const Worker& worker : coordinator_state_.roster) all.push_back(&workers_.at(worker.id));
  return all;
}

std::vector<const Membership::WorkerRecord*> Membership::newcomers() const {
  std::vector<const WorkerRecord*> all;
  for (const auto& [id, record] : workers_)
    if (!is_member(record) && record.connection_id) all.push_back(&record);
  std::ranges::sort(all, {}, &WorkerRecord::arrival);
  return all;
}

// A member that has not entered this epoch can still reach its first state, and no other can have committed more without it.
std::optional<WorkerProgress> Membership::effective(const WorkerRecord& record) const {
  if (!record.worker_progress || record.worker_progress->epoch == coordinator_state_.epoch) return record.worker_progress;
  if (!coordinator_state_.base) return std::nullopt;
  return WorkerProgress{coordinator_state_.epoch, *coordinator_state_.base, false};
}

// Members of the last epoch that are reachable, sealed and have state.
std::vector<const Membership::WorkerRecord*> Membership::holders(const std::set<WorkerId>& without) const {
  std::vector<const WorkerRecord*> all = members();
  std::erase_if(all, [&](const WorkerRecord* w) {
    return w->presence != Presence::here || !w->reported || !effective(*w) || without.contains(w->worker.id);
  });
  return all;
}

bool Membership::covered(const std::vector<const WorkerRecord*>& holders) const {
  if (rules_.held_state == HeldState::whole) return !holders.empty();
  const std::size_t n = coordinator_state_.roster.size();
  // No member begins to train before all have their shard of this epoch's layout; until then the first holders still have theirs of the
  // epoch before.
  const bool laid_out =
      std::ranges::all_of(holders, [&](const WorkerRecord* w) { return w->worker_progress->epoch == coordinator_state_.epoch; });
  const auto old = std::ranges::count_if(holders, [&](const WorkerRecord* w) {
    return coordinator_state_.rank_of(w->worker.id)->value < static_cast<std::int32_t>(coordinator_state_.holders);
  });
  const bool begun = laid_out && std::ranges::any_of(holders, &WorkerRecord::settled);
  if (!begun && coordinator_state_.holders > 0 && old == static_cast<std::ptrdiff_t>(coordinator_state_.holders)) return true;
  if (!laid_out) return false;
  std::vector<bool> present(n, false);
  for (const WorkerRecord* w : holders) present[static_cast<std::size_t>(coordinator_state_.rank_of(w->worker.id)->value)] = true;
  std::vector<bool> held = present;
  if (rules_.held_state == HeldState::shard_and_buddy)
    for (std::size_t rank = 0; rank < n; ++rank) held[rank] = present[rank] || present[(rank + 1) % n];
  for (const auto& [worker, to] : coordinator_state_.transferred) {  // a planned leaver gave its shard to one of these, and to no buddy
    const auto rank = static_cast<std::size_t>(coordinator_state_.rank_of(worker)->value);
    if (to) held[rank] = held[rank] || present[static_cast<std::size_t>(to.value)];
  }
  return n > 0 && std::ranges::all_of(held, [](bool h) { return h; });
}

// Leavers have written the state to disk: all of them together its shards, or one of them a whole state.
bool Membership::on_disk() const {
  const auto wrote = std::ranges::count_if(coordinator_state_.transferred, [](const auto& entry) { return !entry.second; });
  return rules_.held_state == HeldState::whole ? wrote > 0 : wrote == std::ssize(coordinator_state_.roster);
}

// Whether what it writes is the newest state: not if it drops a step that it was prepared for, which another member may have applied.
bool Membership::saves_all(const WorkerRecord& record) const {
  if (rules_.held_state != HeldState::whole) return true;
  const auto& s = record.worker_progress;
  return s && (s->epoch != coordinator_state_.epoch || !s->prepared || record.finishes);
}

bool Membership::being_saved() const {
  return !on_disk() &&
         std::ranges::any_of(members(), [&](const WorkerRecord* w) { return w->saving && now_ - w->last_heard < rules_.lost_after(); });
}

// No worker alone can save a sharded state: members that leave together form one more epoch to save it together.
bool Membership::only_saves(const Plan& plan) const {
  return rules_.held_state != HeldState::whole && plan.holders > 1 && !on_disk() &&
         std::ranges::all_of(plan.members, &WorkerRecord::leaving);
}

// Whether an unreachable worker may hold a later state than the disk. One that was released counts: it may not have received the message,
// and an ended connection does not tell whether the state was saved. It reports that, or its process is seen to end.
bool Membership::state_may_return() const {
  if (on_disk()) return false;
  const auto all = members();
  const bool not_begun =
      !coordinator_state_.base && std::ranges::any_of(all, [&](const WorkerRecord* w) { return w->reported && !effective(*w); });
  if (not_begun) return false;
  return std::ranges::any_of(all, [&](const WorkerRecord* w) {
    const bool has_state = !w->reported || effective(*w).has_value();  // one that has not reported may have
    return has_state && w->presence != Presence::here && !coordinator_state_.gone.contains(w->worker.id);
  });
}

Membership::Plan Membership::plan_without(const std::set<WorkerId>& excluded) const {
  Plan plan{.excluded = excluded};
  auto with_state = holders(excluded);
  auto staying = with_state;
  std::erase_if(staying, &WorkerRecord::leaving);
  if (covered(staying)) with_state = staying;  // else leavers transfer their state first
  if (!covered(with_state)) with_state.clear();
  for (const WorkerRecord* w : with_state) plan.base = std::min(plan.base.value_or(INT64_MAX), effective(*w)->reach());
  plan.members = with_state;
  plan.holders = with_state.size();
  const auto taken = [&](const WorkerRecord* w) { return std::ranges::find(plan.members, w) != plan.members.end(); };
  for (const WorkerRecord* w : members())
    if (w->presence == Presence::here && w->reported && !w->leaving && !excluded.contains(w->worker.id) && !taken(w))
      plan.members.push_back(w);
  for (const WorkerRecord* w : newcomers()) {
    const auto size = static_cast<int>(plan.members.size());
    if (size < rules_.max_workers && (now_ >= admit_after_ || size < rules_.min_workers)) plan.members.push_back(w);
  }
  if (std::ranges::all_of(plan.members, &WorkerRecord::leaving) && !only_saves(plan))
    plan = Plan{.excluded = excluded};  // no worker to transfer the state to
  return plan;
}

// Members that are reachable, but not from each other, are not tried a third time.
Membership::Plan Membership::plan_next() const {
  if (broke_before_settled() && broken_in_a_row_ > 0) {
    Plan plan = plan_without(unreachable_members());
    if (static_cast<int>(plan.members.size()) >= rules_.min_workers) return plan;
  }
  return plan_without({});
}

// Excludes the member with the most broken links until none is left between the others; the last holder of the state stays.
std::set<WorkerId> Membership::unreachable_members() const {
  std::set<WorkerId> excluded;
  const auto broken_links = [&](const WorkerRecord* w) {
    return std::ranges::count_if(broken_links_, [&](const auto& link) {
      const WorkerId me = w->worker.id;
      const WorkerId other = link.first == me ? link.second : link.first;
      const Presence presence = workers_.at(other).presence;
      return (link.first == me || link.second == me) && presence == Presence::here && !excluded.contains(other);
    });
  };
  for (;;) {
    const auto with_state = holders(excluded);
    const WorkerRecord* worst = nullptr;
    for (const WorkerRecord* w : members()) {
      const bool last_holder = with_state.size() == 1 && with_state[0] == w;
      if (w->presence != Presence::here || excluded.contains(w->worker.id) || last_holder || broken_links(w) == 0) continue;
      if (worst == nullptr || broken_links(w) >= broken_links(worst)) worst = w;  // of equals the highest rank
    }
    if (worst == nullptr) return excluded;
    excluded.insert(worst->worker.id);
  }
}

// Such workers would reconnect at once, and break the next epoch like this one.
bool Membership::leaves_out_living(const Plan& plan) const {
  const auto taken = [&](const WorkerRecord* w) { return std::ranges::find(plan.members, w) != plan.members.end(); };
  return !plan.excluded.empty() ||
         std::ranges::any_of(members(), [&](const WorkerRecord* w) { return w->stuck && w->connection_id && !taken(w); });
}

}  // namespace cohort::elastic
