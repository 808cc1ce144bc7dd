#include "cohort/group/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cohort::group {
namespace {

void check(const ElasticRules& r) {
  if (r.least < 1 || r.most < r.least || r.wanted < r.least || r.wanted > r.most)
    throw_failure(Kind::usage, "at least {}, at most {}, wanted {} workers: needs 1 <= least <= wanted <= most", r.least, r.most, r.wanted);
  if (r.respawns < 0 || r.heartbeat <= 0)
    throw_failure(Kind::usage, "{} respawns and a heartbeat of {} s cannot be", r.respawns, r.heartbeat);
}

}  // namespace

Elastic::Elastic(ElasticRules rules, Charter charter, double now) : rules_(std::move(rules)), charter_(std::move(charter)), now_(now) {
  check(rules_);
  formed_at_ = now;
  for (const Worker& worker : charter_.roster) {
    Known& known = known_[worker.id];
    known.worker = worker;
    known.presence = charter_.gone.contains(worker.id) ? Presence::lost : Presence::away;
    known.until = now + rules_.return_limit;
  }
}

Decided Elastic::open(double now) {
  out_ = {};
  now_ = now;
  decide(Opened{charter_.term + 1});
  if (charter_.epoch.value > 0)
    say(fmt::format("back as the coordinator of '{}', term {}: waiting {:g} s for the {} workers of epoch {}", rules_.job, charter_.term,
                    rules_.return_limit, charter_.roster.size(), charter_.epoch.value));
  return std::exchange(out_, {});
}

Decided Elastic::handle(const ElasticEvent& event, double now) {
  out_ = {};
  if (now - now_ > rules_.lost_after() / 2) forgive(now - now_);
  now_ = std::max(now_, now);
  std::visit([this](const auto& e) { on(e); }, event);
  consider();
  return std::exchange(out_, {});
}

// It was us who slept: ticks are due every heartbeat. Nobody could be heard meanwhile, so nobody was silent.
void Elastic::forgive(double slept) {
  for (auto& [id, known] : known_) {
    known.heard += slept;
    known.until += slept;
  }
  sealed_at_ += slept;
  formed_at_ += slept;
}

// Whatever comes over a connection is a sign of life.
Elastic::Known* Elastic::of(Guest guest) {
  for (auto& [id, known] : known_) {
    if (known.guest != guest) continue;
    known.heard = now_;
    if (known.presence == Presence::silent) known.presence = Presence::here;
    return &known;
  }
  return nullptr;
}

std::string Elastic::name(const Known& known) const {
  const auto rank = charter_.rank_of(known.worker.id);
  const Member& m = known.worker.member;
  return rank ? fmt::format("rank {} (process {} on {})", rank->value, m.pid, m.host) : fmt::format("process {} on {}", m.pid, m.host);
}

void Elastic::on(const Arrive& arrive) {
  if (arrives_late(arrive)) return;
  const bool is_new = !known_.contains(arrive.worker.id);
  Known& known = known_[arrive.worker.id];
  known.guest = arrive.guest;
  known.heard = now_;
  if (is_new) {
    known.arrival = arrivals_++;
    one_came();
    count_left(0);
  }
  if (is_member(known)) return returns(known, arrive);
  known.worker = arrive.worker;
  if (charter_.epoch.value > 0 && static_cast<int>(charter_.roster.size()) >= rules_.most)
    out_.actions.push_back(
        Say{fmt::format("{} waits: the job has its {} workers; it steps in when one is lost", name(known), rules_.most), {arrive.guest}});
}

bool Elastic::arrives_late(const Arrive& arrive) {
  const Guest guest = arrive.guest;
  if (over_) {
    out_.actions.push_back(Stop{{guest}, Error{Kind::aborted, fmt::format("job '{}' is over", rules_.job)}});
    return true;
  }
  if (arrive.epoch > charter_.epoch) {
    out_.actions.push_back(Refuse{guest,
                                  {Kind::corrupt,
                                   fmt::format("a worker comes from epoch {} of job '{}', and the coordinator's log ends at epoch {}: it "
                                               "was started with another log file",
                                               arrive.epoch.value, rules_.job, charter_.epoch.value),
                                   kNoRank}});
    return true;
  }
  if (arrive.epoch.value == 0 || charter_.rank_of(arrive.worker.id)) return false;
  out_.actions.push_back(Evict{guest,
                               {Kind::peer_lost,
                                fmt::format("epoch {} was left behind: job '{}' is in epoch {} without this worker; it may join as new",
                                            arrive.epoch.value, rules_.job, charter_.epoch.value),
                                kNoRank}});
  return true;
}

// A member whose connection or coordinator was lost. One that never heard of this epoch has not voted in it and hears of it now.
void Elastic::returns(Known& known, const Arrive& arrive) {
  const bool was_away = std::exchange(known.presence, Presence::here) == Presence::away;
  known.saving = false;  // it never heard that it may go, or is still at it
  const bool in_epoch = arrive.epoch == charter_.epoch;
  if (in_epoch) known.settled = arrive.settled;
  if (in_epoch ? arrive.sealed : sealing_ != Sealing::no) {
    known.reported = true;
    known.standing = arrive.standing;
  } else if (!in_epoch) {
    announce(known);
  } else if (sealing_ != Sealing::no) {
    out_.actions.push_back(Seal{{arrive.guest}, charter_.term, charter_.epoch, sealing_ == Sealing::urgently});
  }
  if (was_away && std::ranges::all_of(members(), [](const Known* k) { return k->presence == Presence::here && !k->reported; }))
    say(fmt::format("all {} workers of epoch {} are back: it goes on", charter_.roster.size(), charter_.epoch.value));
}

void Elastic::on(const Reported& report) {
  Known* known = of(report.guest);
  if (known == nullptr || report.epoch != charter_.epoch || !is_member(*known)) return;
  known->presence = Presence::here;
  known->reported = true;
  known->standing = report.standing;
}

void Elastic::on(const Settled& e) {
  Known* known = of(e.guest);
  if (known == nullptr || e.epoch != charter_.epoch || !is_member(*known)) return;
  known->settled = true;
  if (!settled()) return;
  waiting_since_.reset();
  if (broken_.empty()) stillborn_ = 0;
  if (formed_at_ >= hold_until_) cuts_ = 0;
  if (hold_ > 0) hold_until_ = now_ + std::exchange(hold_, 0);
}

void Elastic::on(const Complained& e) {
  const Known* known = of(e.guest);
  if (known == nullptr || e.epoch != charter_.epoch || !is_member(*known)) return;
  if (e.about.value < 0 || static_cast<std::size_t>(e.about.value) >= charter_.roster.size()) return;
  const WorkerId about = charter_.roster[static_cast<std::size_t>(e.about.value)].id;
  if (about != known->worker.id) broken_.emplace(known->worker.id, about);
}

void Elastic::on(const Leaving& e) {
  Known* known = of(e.guest);
  if (known == nullptr) return;
  say(fmt::format("{} leaves: {}", name(*known), e.why));
  known->leaving = true;
  if (is_member(*known)) return;
  out_.actions.push_back(Release{e.guest});
  known_.erase(known->worker.id);
  count_left(1);
}

void Elastic::on(const Ended& e) {
  Known* known = of(e.guest);
  if (known == nullptr || !is_member(*known)) return;
  known->ended = true;
  if (!charter_.finished) decide(Finished{e.step});
}

void Elastic::on(const Entrusted& e) {
  Known* known = of(e.guest);
  if (known == nullptr || e.epoch != charter_.epoch || !is_member(*known)) return;
  if (e.to != kNoRank && (!e.to || e.to.value >= static_cast<int>(charter_.roster.size()))) return;
  if (!e.to && !saves_all(*known)) return;
  const auto at = charter_.handed.find(known->worker.id);
  if (at == charter_.handed.end() || at->second != e.to) decide(Handed{known->worker.id, e.to});
}

void Elastic::on(const Condemned& e) {
  const Known* known = of(e.guest);
  if (known == nullptr || !is_member(*known) || over_) return;
  give_up(e.error.kind, e.error.what, e.error.rank);
}

void Elastic::on(const LinkEnded& e) {
  Known* known = of(e.guest);
  if (known == nullptr) return;
  known->guest.reset();
  known->saving = false;
  if (is_member(*known))
    lose(*known, "its connection ended");
  else
    known_.erase(known->worker.id);
}

void Elastic::on(const ProcessEnded& e) {
  const auto at = known_.find(e.worker);
  if (at == known_.end()) return;
  if (!is_member(at->second)) {
    known_.erase(at);
    return;
  }
  if (!charter_.gone.contains(e.worker)) decide(Gone{e.worker});
  at->second.saving = false;
  lose(at->second, e.how);
}

// One fewer is under way.
void Elastic::one_came() {
  int& which = adopted_ > 0 ? adopted_ : coming_;
  which = std::max(0, which - 1);
}

// They are not replaced before they have had their time to come. One of them may be a stopped process that was left behind.
void Elastic::on(const Adopted& e) {
  adopted_ = e.count;
  coming_ = e.owed;
  adopted_until_ = now_ + rules_.start_grace;
}

void Elastic::on(const SpawnFailed& e) {
  one_came();
  say(fmt::format("a replacement could not be started: {}", e.why));
}

void Elastic::on(const Tick&) {}

void Elastic::lose(Known& known, const std::string& why) {
  if (known.presence != Presence::lost && known.presence != Presence::silent && !known.ended)
    say(fmt::format("{} is lost: {}", name(known), why));
  known.presence = Presence::lost;
}

void Elastic::look_for_the_silent() {
  std::vector<WorkerId> strangers;
  for (auto& [id, known] : known_) {
    if (known.presence == Presence::away && now_ >= known.until)
      lose(known, fmt::format("it did not come back within {:g} s", rules_.return_limit));
    if (known.presence != Presence::here || now_ - known.heard < rules_.lost_after()) continue;
    if (!is_member(known)) {
      strangers.push_back(id);
      continue;
    }
    lose(known, fmt::format("nothing heard for {:g} s", rules_.lost_after()));
    known.presence = Presence::silent;
  }
  for (const WorkerId id : strangers) {  // it waited to be let in; there is nothing to rescue
    const Known& known = known_.at(id);
    out_.actions.push_back(
        Refuse{*known.guest, {Kind::timeout, fmt::format("{}: nothing heard for {:g} s", name(known), rules_.lost_after()), kNoRank}});
    known_.erase(id);
  }
}

bool Elastic::settled() const {
  return std::ranges::all_of(charter_.roster, [&](const Worker& w) { return known_.at(w.id).settled; });
}

double Elastic::next_tick() const {
  double at = now_ + rules_.heartbeat;
  const auto due = [&](double when) {
    if (when > now_) at = std::min(at, when);
  };
  for (const auto& [id, known] : known_) {
    if (known.presence == Presence::here) due(known.heard + rules_.lost_after());
    if (known.presence == Presence::away) due(known.until);
  }
  if (sealing_ == Sealing::urgently) due(sealed_at_ + rules_.report_limit);
  if (waiting_since_) due(std::min(warn_at_, *waiting_since_ + rules_.wait_limit));
  if (hold_until_ > now_) due(hold_until_);
  return at;
}

void Elastic::decide(const Entry& entry) {
  apply(charter_, entry);
  out_.entries.push_back(entry);
}

std::vector<Guest> Elastic::guests() const {
  std::vector<Guest> all;
  for (const auto& [id, known] : known_)
    if (known.guest) all.push_back(*known.guest);
  return all;
}

void Elastic::say(std::string text, bool to_all) { out_.actions.push_back(Say{std::move(text), to_all ? guests() : std::vector<Guest>{}}); }

}  // namespace cohort::group
