// From a reason to change to the end of an epoch, replacements of lost workers, and the end of the job. docs/adr/0009-membership.md has the
// argument why this is safe.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/elastic/membership.h"

namespace cohort::elastic {

void Membership::consider() {
  if (over_) return;
  check_heartbeats();
  if (coordinator_state_.finished) return finish_if_done();
  check_limits();
  const bool formed = coordinator_state_.epoch.value > 0;
  if (formed && sealing_ == Sealing::no && change_wanted()) seal();
  if (formed && sealing_ == Sealing::after_step && change_is_urgent()) seal();
  replace_lost();
  if (formed && (sealing_ == Sealing::no || awaits_reports())) return;
  try_to_form();
}

void Membership::check_limits() {
  const bool reports_due = sealing_ == Sealing::at_once && now_ - sealed_at_ >= rules_.report_limit;
  const bool settling_due = sealing_ == Sealing::no && coordinator_state_.epoch.value > 0 && now_ - formed_at_ >= rules_.settle_limit;
  for (auto& [id, record] : workers_) {
    if (record.presence != Presence::here || !is_member(record)) continue;
    const bool no_report = reports_due && !record.reported, not_ready = settling_due && !record.settled && !record.reported;
    if (no_report) mark_lost(record, fmt::format("it did not report its progress within {:g} s", rules_.report_limit));
    if (not_ready) mark_lost(record, fmt::format("it was not ready within {:g} s", rules_.settle_limit));
    record.stuck = no_report || not_ready;
  }
}

// Whether newcomers are worth a change now. An epoch that has not settled is left to settle first.
bool Membership::admits() const {
  const auto leaving = std::ranges::count_if(members(), [](const WorkerRecord* w) { return w->leaving; });
  const auto room = rules_.max_workers - static_cast<int>(coordinator_state_.roster.size()) + static_cast<int>(leaving);
  return room > 0 && now_ >= admit_after_ && settled() && !newcomers().empty();
}

bool Membership::change_wanted() const {
  for (const WorkerRecord* w : members()) {
    if (w->presence == Presence::lost || w->presence == Presence::silent || w->reported) return true;
    if (w->leaving && settled()) return true;
  }
  return !broken_links_.empty() || admits();
}

// A member cannot finish the step under way.
bool Membership::change_is_urgent() const {
  if (!broken_links_.empty()) return true;
  return std::ranges::any_of(members(), [&](const WorkerRecord* w) {
    return w->presence == Presence::lost || w->presence == Presence::silent || (w->reported && sealing_ == Sealing::no);
  });
}

void Membership::seal() {
  sealing_ = change_is_urgent() ? Sealing::at_once : Sealing::after_step;
  sealed_at_ = now_;
  std::vector<group::ConnectionId> to;
  for (const WorkerRecord* w : members())
    if (w->connection_id && !w->reported) to.push_back(*w->connection_id);
  if (!to.empty()) out_.actions.push_back(SealEpoch{to, coordinator_state_.term, coordinator_state_.epoch, sealing_ == Sealing::at_once});
}

bool Membership::awaits_reports() const {
  return std::ranges::any_of(
      members(), [](const WorkerRecord* w) { return w->presence == Presence::away || (w->presence == Presence::here && !w->reported); });
}

// A vote needs the whole roster: none can succeed once one member is sealed, or when all have ended.
bool Membership::fenced() const {
  return std::ranges::any_of(members(), &WorkerRecord::reported) || coordinator_state_.gone.size() == coordinator_state_.roster.size();
}

// Workers that train, wait or are expected.
int Membership::headcount() const {
  const auto present = std::ranges::count_if(
      workers_, [](const auto& entry) { return entry.second.presence == Presence::here || entry.second.presence == Presence::away; });
  return replacements_due_ + adopted_ + static_cast<int>(returning_.size()) + static_cast<int>(present);
}

// A worker that left of its own will no longer counts as missing once another one has joined that was not requested, nor if it was a
// surplus.
void Membership::count_left(int more) {
  const int left = std::min(static_cast<int>(coordinator_state_.left) + more, std::max(0, rules_.target_workers - headcount()));
  if (left != static_cast<int>(coordinator_state_.left)) decide(Left{static_cast<std::uint32_t>(left)});
}

void Membership::replace_lost() {
  if (now_ >= adopted_until_) adopted_ = 0;
  std::erase_if(returning_, [&](const auto& one) { return now_ >= one.second.until; });
  const int budget = rules_.respawns - static_cast<int>(coordinator_state_.respawned);
  const int count = std::min(rules_.target_workers - headcount() - static_cast<int>(coordinator_state_.left), budget);
  if (count <= 0) return;
  decide(Respawned{coordinator_state_.respawned + static_cast<std::uint32_t>(count)});
  replacements_due_ += count;
  out_.actions.push_back(Respawn{count});
}

// A member that passed the last barrier knows that all have the last state, also one whose connection broke in that barrier.
void Membership::finish_if_done() {
  const bool all = std::ranges::all_of(members(), [](const WorkerRecord* w) {
    return w->ended || w->reported || w->presence == Presence::lost || w->presence == Presence::silent;
  });
  if (!all) return;
  over_ = true;
  out_.actions.push_back(Stop{connection_ids(), std::nullopt});
}

void Membership::give_up(Kind kind, const std::string& text, Rank about) {
  over_ = true;
  const Error error{kind, fmt::format("job '{}' gives up: {}", rules_.job, text), about};
  say(error.what);
  out_.actions.push_back(Stop{connection_ids(), error});
}

}  // namespace cohort::elastic
