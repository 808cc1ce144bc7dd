// From a reason to change to the next epoch. docs/adr/0009-membership.md is the argument, this file follows it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cohort/group/elastic.h"

namespace cohort::group {

void Elastic::consider() {
  if (over_) return;
  look_for_the_silent();
  if (charter_.finished) return finish_if_done();
  check_limits();
  const bool formed = charter_.epoch.value > 0;
  if (formed && sealing_ == Sealing::no && change_wanted()) seal();
  if (formed && sealing_ == Sealing::gently && change_is_urgent()) seal();
  if (formed) replace_lost();
  if (formed && (sealing_ == Sealing::no || awaits_reports())) return;
  try_to_form();
}

void Elastic::check_limits() {
  const bool reports_due = sealing_ == Sealing::urgently && now_ - sealed_at_ >= rules_.report_limit;
  const bool settling_due = sealing_ == Sealing::no && charter_.epoch.value > 0 && now_ - formed_at_ >= rules_.settle_limit;
  for (auto& [id, known] : known_) {
    if (known.presence != Presence::here || !is_member(known)) continue;
    const bool never_said = reports_due && !known.reported, never_ready = settling_due && !known.settled && !known.reported;
    if (never_said) lose(known, fmt::format("it did not say where it stands within {:g} s", rules_.report_limit));
    if (never_ready) lose(known, fmt::format("it did not get ready within {:g} s", rules_.settle_limit));
    known.stuck = never_said || never_ready;
  }
}

std::vector<const Elastic::Known*> Elastic::members() const {
  std::vector<const Known*> all;
  for (const Worker& worker : charter_.roster) all.push_back(&known_.at(worker.id));
  return all;
}

std::vector<const Elastic::Known*> Elastic::newcomers() const {
  std::vector<const Known*> all;
  for (const auto& [id, known] : known_)
    if (!is_member(known) && known.guest) all.push_back(&known);
  std::ranges::sort(all, {}, &Known::arrival);
  return all;
}

// Whether newcomers are worth a change now. An epoch that has not settled is left to settle first.
bool Elastic::admits() const {
  const auto leaving = std::ranges::count_if(members(), [](const Known* k) { return k->leaving; });
  const auto room = rules_.most - static_cast<int>(charter_.roster.size()) + static_cast<int>(leaving);
  return room > 0 && now_ >= hold_until_ && settled() && !newcomers().empty();
}

bool Elastic::change_wanted() const {
  for (const Known* k : members()) {
    if (k->presence == Presence::lost || k->presence == Presence::silent || k->reported) return true;
    if (k->leaving && settled()) return true;
  }
  return !broken_.empty() || admits();
}

// Somebody cannot or will not finish the step under way.
bool Elastic::change_is_urgent() const {
  if (!broken_.empty()) return true;
  return std::ranges::any_of(members(), [&](const Known* k) {
    return k->presence == Presence::lost || k->presence == Presence::silent || (k->reported && sealing_ == Sealing::no);
  });
}

void Elastic::seal() {
  sealing_ = change_is_urgent() ? Sealing::urgently : Sealing::gently;
  sealed_at_ = now_;
  std::vector<Guest> whom;
  for (const Known* k : members())
    if (k->guest && !k->reported) whom.push_back(*k->guest);
  if (!whom.empty()) out_.actions.push_back(Seal{whom, charter_.term, charter_.epoch, sealing_ == Sealing::urgently});
}

bool Elastic::awaits_reports() const {
  return std::ranges::any_of(
      members(), [](const Known* k) { return k->presence == Presence::away || (k->presence == Presence::here && !k->reported); });
}

// A vote needs all of the roster: it is over when one of them has sealed, or when none is left to count the votes.
bool Elastic::fenced() const { return std::ranges::any_of(members(), &Known::reported) || charter_.gone.size() == charter_.roster.size(); }

// Who has not entered this epoch can still reach its first state, and nobody can have gone further without him.
std::optional<Standing> Elastic::effective(const Known& known) const {
  if (!known.standing || known.standing->epoch == charter_.epoch) return known.standing;
  if (!charter_.base) return std::nullopt;
  return Standing{charter_.epoch, *charter_.base, false};
}

// Those of the last epoch who can be heard, are sealed and have state.
std::vector<const Elastic::Known*> Elastic::holders(const std::set<WorkerId>& without) const {
  std::vector<const Known*> all = members();
  std::erase_if(all, [&](const Known* k) {
    return k->presence != Presence::here || !k->reported || !effective(*k) || without.contains(k->worker.id);
  });
  return all;
}

bool Elastic::covered(const std::vector<const Known*>& holders) const {
  if (rules_.holding == Holding::whole) return !holders.empty();
  const std::size_t n = charter_.roster.size();
  // Until all have got their part of this epoch's layout nobody has begun to train, and those it was formed of still have theirs of the
  // one before.
  const bool laid_out = std::ranges::all_of(holders, [&](const Known* k) { return k->standing->epoch == charter_.epoch; });
  const auto old = std::ranges::count_if(
      holders, [&](const Known* k) { return charter_.rank_of(k->worker.id)->value < static_cast<std::int32_t>(charter_.holders); });
  const bool begun = laid_out && std::ranges::any_of(holders, &Known::settled);
  if (!begun && charter_.holders > 0 && old == static_cast<std::ptrdiff_t>(charter_.holders)) return true;
  if (!laid_out) return false;
  std::vector<bool> there(n, false);
  for (const Known* k : holders) there[static_cast<std::size_t>(charter_.rank_of(k->worker.id)->value)] = true;
  std::vector<bool> held = there;
  if (rules_.holding == Holding::shard_and_buddy)
    for (std::size_t rank = 0; rank < n; ++rank) held[rank] = there[rank] || there[(rank + 1) % n];
  for (const auto& [worker, to] : charter_.handed) {  // whoever leaves as planned gave its part to one of these before, and to no buddy
    const auto rank = static_cast<std::size_t>(charter_.rank_of(worker)->value);
    if (to) held[rank] = held[rank] || there[static_cast<std::size_t>(to.value)];
  }
  return n > 0 && std::ranges::all_of(held, [](bool h) { return h; });
}

// All leave, and have written what they held down together; of a whole state one has it all.
bool Elastic::on_disk() const {
  const auto wrote = std::ranges::count_if(charter_.handed, [](const auto& entry) { return !entry.second; });
  return rules_.holding == Holding::whole ? wrote > 0 : wrote == std::ssize(charter_.roster);
}

// What one writes is all there is, unless it leaves a step out that it was prepared for: somebody may have applied that one.
bool Elastic::saves_all(const Known& known) const {
  if (rules_.holding != Holding::whole) return true;
  const auto& s = known.standing;
  return s && (s->epoch != charter_.epoch || !s->prepared || known.finishes);
}

bool Elastic::being_saved() const {
  return !on_disk() && std::ranges::any_of(members(), [&](const Known* k) { return k->saving && now_ - k->heard < rules_.lost_after(); });
}

// Of sharded state nobody can save all: those who leave together meet once more to do it together.
bool Elastic::only_saves(const Plan& plan) const {
  return rules_.holding != Holding::whole && plan.holders > 1 && !on_disk() && std::ranges::all_of(plan.members, &Known::leaving);
}

// Whether somebody who cannot be heard may hold a later state than the disk. Who was let go counts: the word may never have reached it,
// and a connection that ended says nothing about what was saved. That it is on disk is said, or its process is seen to end.
bool Elastic::state_may_return() const {
  if (on_disk()) return false;
  const auto all = members();
  const bool nobody_began = !charter_.base && std::ranges::any_of(all, [&](const Known* k) { return k->reported && !effective(*k); });
  if (nobody_began) return false;
  return std::ranges::any_of(all, [&](const Known* k) {
    const bool has_state = !k->reported || effective(*k).has_value();  // who has not reported may have
    return has_state && k->presence != Presence::here && !charter_.gone.contains(k->worker.id);
  });
}

Elastic::Plan Elastic::plan_without(const std::set<WorkerId>& cut) const {
  Plan plan{.cut = cut};
  auto with_state = holders(cut);
  auto staying = with_state;
  std::erase_if(staying, &Known::leaving);
  if (covered(staying)) with_state = staying;  // else those who want to leave hand the state over first
  if (!covered(with_state)) with_state.clear();
  for (const Known* k : with_state) plan.base = std::min(plan.base.value_or(INT64_MAX), effective(*k)->reach());
  plan.members = with_state;
  plan.holders = with_state.size();
  const auto taken = [&](const Known* k) { return std::ranges::find(plan.members, k) != plan.members.end(); };
  for (const Known* k : members())
    if (k->presence == Presence::here && k->reported && !k->leaving && !cut.contains(k->worker.id) && !taken(k)) plan.members.push_back(k);
  for (const Known* k : newcomers()) {
    const auto size = static_cast<int>(plan.members.size());
    if (size < rules_.most && (now_ >= hold_until_ || size < rules_.least)) plan.members.push_back(k);
  }
  if (std::ranges::all_of(plan.members, &Known::leaving) && !only_saves(plan)) plan = Plan{.cut = cut};  // nobody to hand over to
  return plan;
}

// Members that can be heard, but not by each other, are not tried a third time.
Elastic::Plan Elastic::plan_next() const {
  if (stillborn() && stillborn_ > 0) {
    Plan plan = plan_without(cut_off());
    if (static_cast<int>(plan.members.size()) >= rules_.least) return plan;
  }
  return plan_without({});
}

// Leaves out whoever has the most broken links until none is left between the others; the last one who holds the state stays.
std::set<WorkerId> Elastic::cut_off() const {
  std::set<WorkerId> cut;
  const auto broken_links = [&](const Known* k) {
    return std::ranges::count_if(broken_, [&](const auto& link) {
      const WorkerId me = k->worker.id;
      const WorkerId other = link.first == me ? link.second : link.first;
      const Presence presence = known_.at(other).presence;
      return (link.first == me || link.second == me) && presence == Presence::here && !cut.contains(other);
    });
  };
  for (;;) {
    const auto with_state = holders(cut);
    const Known* worst = nullptr;
    for (const Known* k : members()) {
      const bool last_holder = with_state.size() == 1 && with_state[0] == k;
      if (k->presence != Presence::here || cut.contains(k->worker.id) || last_holder || broken_links(k) == 0) continue;
      if (worst == nullptr || broken_links(k) >= broken_links(worst)) worst = k;  // of equals the highest rank
    }
    if (worst == nullptr) return cut;
    cut.insert(worst->worker.id);
  }
}

// Those would come again at once, and break the next epoch like this one.
bool Elastic::leaves_out_living(const Plan& plan) const {
  const auto taken = [&](const Known* k) { return std::ranges::find(plan.members, k) != plan.members.end(); };
  return !plan.cut.empty() || std::ranges::any_of(members(), [&](const Known* k) { return k->stuck && k->guest && !taken(k); });
}

std::string Elastic::why_not(const Plan& plan) const {
  const int size = static_cast<int>(plan.members.size());
  const bool first = charter_.epoch.value == 0;
  if (size < rules_.least && !(size > 0 && only_saves(plan))) return fmt::format("{} of at least {} workers", size, rules_.least);
  if (first && size < rules_.wanted && now_ - waiting_since_.value_or(now_) < rules_.start_grace)
    return fmt::format("{} of {} workers have come; after {:g} s {} are enough", size, rules_.wanted, rules_.start_grace, rules_.least);
  if (!first && plan.holders == 0 && being_saved()) return fmt::format("the state of epoch {} is being saved", charter_.epoch.value);
  if (!first && plan.holders == 0 && state_may_return() && now_ - stateless_since_.value_or(now_) < rules_.state_patience)
    return fmt::format("nobody who can be heard has the state of epoch {}; after {:g} s the newest checkpoint is taken",
                       charter_.epoch.value, rules_.state_patience);
  if (first || rules_.quorum == Quorum::minimum) return "";
  std::size_t of = 0, heard = 0;
  for (const Known* k : members()) {
    const bool here = k->presence == Presence::here;  // one that leaves is there until it has left
    of += here || (!k->leaving && !charter_.gone.contains(k->worker.id)) ? 1 : 0;
    heard += here ? 1 : 0;
  }
  if (of == 0 || 2 * heard > of) return "";
  return fmt::format("{} of the {} workers of epoch {} can be heard, which is no majority", heard, of, charter_.epoch.value);
}

void Elastic::try_to_form() {
  if (charter_.epoch.value > 0 && !fenced())
    return wait(fmt::format("no worker of epoch {} can be heard, and not all are known to have ended: they may still be training",
                            charter_.epoch.value));
  const Plan plan = plan_next();
  if (plan.holders == 0 && (!stateless_since_ || being_saved())) stateless_since_ = now_;  // patience begins when its heart stops
  if (plan.holders > 0) stateless_since_.reset();
  if (charter_.epoch.value == 0 && !plan.members.empty()) begin_to_wait();
  const std::string why = why_not(plan);
  if (why.empty()) return form(plan);
  release_leavers(plan);
  wait(why);
}

// To end a prepared step alone makes it count: right when this epoch begins with it, or when all who could come back can end it, too.
bool Elastic::to_finish(const Known& leaver) const {
  const Standing& mine = *leaver.standing;
  if (!mine.prepared) return false;
  if (mine.epoch != charter_.epoch) return *charter_.base > mine.applied;
  return std::ranges::all_of(members(), [&](const Known* k) {
    const bool heard = k->presence == Presence::here && k->reported;
    if (!heard) return charter_.gone.contains(k->worker.id);
    const auto standing = effective(*k);
    return !standing || standing->reach() >= mine.reach();
  });
}

// A change that must wait does not hold up those who want to go, unless they have to hand over to somebody who is there.
void Elastic::release_leavers(const Plan& plan) {
  const auto with_state = holders({});
  auto staying = with_state;
  std::erase_if(staying, &Known::leaving);
  const bool worth_saving = covered(with_state) && !covered(staying) && !on_disk();  // parts of a state are worth nothing
  bool written = std::ranges::any_of(members(), &Known::saving);                     // one writes for all
  std::vector<Known*> leavers;
  for (auto& [id, known] : known_) {
    if (!known.leaving || !known.guest || !known.reported || known.saving || known.presence != Presence::here) continue;
    const bool needed = worth_saving && effective(known);
    if (needed && !plan.members.empty()) continue;
    known.saving = needed && !written;
    known.finishes = known.saving && to_finish(known);
    written = written || known.saving;
    leavers.push_back(&known);
  }
  for (Known* k : leavers) {
    k->presence = Presence::lost;
    out_.actions.push_back(Release{*k->guest, k->saving, k->finishes});
    if (!k->saving) k->guest.reset();
  }
}

// That workers need a moment to start is nothing to talk about.
void Elastic::begin_to_wait() {
  constexpr double kStart = 3;
  if (waiting_since_) return;
  waiting_since_ = now_;
  warn_at_ = now_ + (charter_.epoch.value == 0 ? std::min(kStart, rules_.wait_limit) : 0);
}

void Elastic::wait(const std::string& why) {
  begin_to_wait();
  const double waited = now_ - *waiting_since_;
  if (waited >= rules_.wait_limit) return give_up(Kind::timeout, fmt::format("waited {:g} s: {}", rules_.wait_limit, why));
  if (now_ < warn_at_) return;
  warn_at_ = now_ + rules_.warn_every;
  say(fmt::format("waiting ({:.0f} s of {:g} s): {}", waited, rules_.wait_limit, why), true);
}

std::string Elastic::describe(const Plan& plan) const {
  const auto epoch = charter_.epoch.value;
  const std::size_t size = plan.members.size(), fresh = size - plan.holders;
  if (epoch == 1) return fmt::format("epoch 1: {} workers", size);
  if (!plan.base) return fmt::format("epoch {}: {} workers, from the newest checkpoint: nobody left has the state", epoch, size);
  const std::string healed = fresh == 0 ? "" : fmt::format(", {} of them with the state of a peer", fresh);
  return fmt::format("epoch {}: {} workers go on after step {}{}", epoch, size, *plan.base, healed);
}

void Elastic::form(const Plan& plan) {
  for (const Known* k : holders(plan.cut)) {
    if (!plan.base || effective(*k)->applied <= *plan.base) continue;
    return give_up(
        Kind::bug,
        fmt::format("{} has applied step {}, but another member was never asked beyond step {}: the workers of epoch {} broke the "
                    "protocol",
                    name(*k), effective(*k)->applied, *plan.base, charter_.epoch.value),
        *charter_.rank_of(k->worker.id));
  }
  stillborn_ = stillborn() ? stillborn_ + 1 : 0;
  if (stillborn_ > 0 && !waiting_since_) waiting_since_ = now_;  // until one of them settles
  if (stillborn_ > 0 && now_ - *waiting_since_ >= rules_.wait_limit)
    return give_up(Kind::timeout,
                   fmt::format("for {:g} s its workers could not all reach each other, {} epochs in a row", rules_.wait_limit, stillborn_));
  hold_ = leaves_out_living(plan) ? rules_.cool_down * std::pow(2, std::min(cuts_++, 6)) : 0;
  if (hold_ > 0) hold_until_ = now_ + hold_;  // and again from when it has settled
  Formed formed{Epoch{charter_.epoch.value + 1}, plan.base, {}, static_cast<std::uint32_t>(plan.holders)};
  for (const Known* k : plan.members) {
    formed.roster.push_back(k->worker);
    formed.roster.back().member.rank = Rank{static_cast<std::int32_t>(formed.roster.size()) - 1};
  }
  std::set<WorkerId> before;
  for (const Worker& worker : charter_.roster) before.insert(worker.id);
  decide(formed);
  broken_.clear();
  stateless_since_.reset();
  sealing_ = Sealing::no;
  formed_at_ = now_;
  say(describe(plan));
  for (const Worker& worker : charter_.roster) {
    Known& known = known_.at(worker.id);
    known.worker = worker;
    known.settled = known.reported = known.stuck = false;
    known.standing.reset();
    before.erase(worker.id);
    announce(known);
  }
  for (const WorkerId id : before) dismiss(known_.at(id));
}

void Elastic::announce(const Known& known) {
  Roster roster{rules_.job, charter_.epoch, {}};
  for (const Worker& worker : charter_.roster) roster.members.push_back(worker.member);
  const Rank rank = *charter_.rank_of(known.worker.id);
  out_.actions.push_back(Begin{*known.guest, charter_.term, std::move(roster), rank, charter_.base, charter_.heals_from(rank)});
}

// It was in the last epoch and is not in this one.
void Elastic::dismiss(const Known& known) {
  const bool leaving = known.leaving;
  if (known.guest && known.leaving && known.reported)
    out_.actions.push_back(Release{*known.guest});
  else if (known.guest)
    out_.actions.push_back(
        Evict{*known.guest,
              {Kind::peer_lost,
               fmt::format("job '{}' went on in epoch {} without {}; it may join as new", rules_.job, charter_.epoch.value, name(known)),
               kNoRank}});
  known_.erase(known.worker.id);
  if (leaving) count_left(1);
}

// Who works, waits or is on the way.
int Elastic::there() const {
  const auto present = std::ranges::count_if(
      known_, [](const auto& entry) { return entry.second.presence == Presence::here || entry.second.presence == Presence::away; });
  return coming_ + adopted_ + static_cast<int>(present);
}

// Who left of his own will is missed no more once somebody whom nobody asked for has come in his place, and never if he was one too many.
void Elastic::count_left(int more) {
  const int left = std::min(static_cast<int>(charter_.left) + more, std::max(0, rules_.wanted - there()));
  if (left != static_cast<int>(charter_.left)) decide(Left{static_cast<std::uint32_t>(left)});
}

void Elastic::replace_lost() {
  if (now_ >= adopted_until_) adopted_ = 0;
  const int budget = rules_.respawns - static_cast<int>(charter_.respawned);
  const int count = std::min(rules_.wanted - there() - static_cast<int>(charter_.left), budget);
  if (count <= 0) return;
  decide(Respawned{charter_.respawned + static_cast<std::uint32_t>(count)});
  coming_ += count;
  out_.actions.push_back(Respawn{count});
}

// One that passed the last barrier knows that all have the last state: who was cut off in the barrier itself has it, too.
void Elastic::finish_if_done() {
  const bool all = std::ranges::all_of(members(), [](const Known* k) {
    return k->ended || k->reported || k->presence == Presence::lost || k->presence == Presence::silent;
  });
  if (!all) return;
  over_ = true;
  out_.actions.push_back(Stop{guests(), std::nullopt});
}

void Elastic::give_up(Kind kind, const std::string& text, Rank about) {
  over_ = true;
  const Error error{kind, fmt::format("job '{}' gives up: {}", rules_.job, text), about};
  say(error.what);
  out_.actions.push_back(Stop{guests(), error});
}

}  // namespace cohort::group
