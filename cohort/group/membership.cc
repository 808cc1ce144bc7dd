#include "cohort/group/membership.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::group {

Membership::Membership(MembershipRules rules) : rules_(std::move(rules)) {}

Actions Membership::join(Guest guest, const Join& wish, double now) {
  if (auto error = objection(wish)) return {Refuse{guest, *error}};
  if (waiting_.empty()) {
    since_ = now;
    warn_at_ = now + rules_.warn_after;
  }
  strayed_.erase(wish.member.rank);
  waiting_.emplace(wish.member.rank, Waiting{guest, wish.member});
  if (!ended_.empty()) return give_up(Kind::peer_lost, state_of_missing() + ": the job cannot start without it", ended_.begin()->first);
  if (static_cast<int>(waiting_.size()) < rules_.size) return {};
  Welcome welcome{{rules_.job, epoch_, {}}, guests()};
  for (const auto& [rank, w] : waiting_) welcome.roster.members.push_back(w.member);
  ++epoch_.value;
  waiting_.clear();
  strayed_.clear();
  return {welcome};
}

std::optional<Error> Membership::objection(const Join& wish) const {
  const Rank rank = wish.member.rank;
  if (static_cast<int>(wish.size) != rules_.size)
    return Error{Kind::usage,
                 fmt::format("rendezvous: rank {} believes in {} ranks, job '{}' has {}", rank.value, wish.size, rules_.job, rules_.size),
                 rank};
  if (rank.value < 0 || rank.value >= rules_.size)
    return Error{Kind::usage,
                 fmt::format("rendezvous: rank {} does not exist, job '{}' has ranks 0 to {}", rank.value, rules_.job, rules_.size - 1),
                 rank};
  const auto twin = waiting_.find(rank);
  if (twin == waiting_.end()) return std::nullopt;
  return Error{Kind::usage,
               fmt::format("rendezvous: rank {} of job '{}' is taken by process {} on {}; process {} on {} came second", rank.value,
                           rules_.job, twin->second.member.pid, twin->second.member.host, wish.member.pid, wish.member.host),
               rank};
}

Actions Membership::left(Guest guest, double) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) { return entry.second.guest == guest; });
  if (at == waiting_.end()) return {};
  strayed_[at->first] = fmt::format("process {} on {} joined and went away", at->second.member.pid, at->second.member.host);
  waiting_.erase(at);
  return {};
}

Actions Membership::ended(Rank rank, std::string how) {
  ended_.emplace(rank, std::move(how));
  if (waiting_.empty()) return {};
  // Even one that had joined: the roster is not complete, and now never will be.
  waiting_.erase(rank);
  return give_up(Kind::peer_lost, state_of_missing() + ": the job cannot start without it", rank);
}

Actions Membership::tick(double now) {
  if (waiting_.empty()) return {};
  const double waited = now - since_;
  if (waited >= rules_.start_timeout)
    return give_up(Kind::timeout,
                   fmt::format("{} within {:g} s: see what {} doing, or wait longer with --start-timeout (COHORT_START_TIMEOUT)",
                               state_of_missing(), rules_.start_timeout, missing().size() == 1 ? "it is" : "they are"),
                   missing().front());
  if (now < warn_at_) return {};
  warn_at_ = now + rules_.warn_every;
  return {Warn{fmt::format("waiting for {} of {} ({:.0f} s of {:g} s): {}", name_ranks(missing()), rules_.size, waited,
                           rules_.start_timeout, state_of_missing()),
               guests()}};
}

std::optional<double> Membership::next_tick() const {
  if (waiting_.empty()) return std::nullopt;
  return std::min(warn_at_, since_ + rules_.start_timeout);
}

std::vector<Rank> Membership::missing() const {
  std::vector<Rank> ranks;
  for (int r = 0; r < rules_.size; ++r)
    if (!waiting_.contains(Rank{r})) ranks.push_back(Rank{r});
  return ranks;
}

std::vector<Guest> Membership::guests() const {
  std::vector<Guest> all;
  for (const auto& [rank, w] : waiting_) all.push_back(w.guest);
  return all;
}

// The most telling fact about those who are not there.
std::string Membership::state_of_missing() const {
  if (!ended_.empty())
    return fmt::format("rank {} of {} ended before all had joined ({})", ended_.begin()->first.value, rules_.size, ended_.begin()->second);
  const auto absent = missing();
  std::string text = fmt::format("{} of {} {} not joined", name_ranks(absent), rules_.size, absent.size() == 1 ? "has" : "have");
  for (const auto& [rank, how] : strayed_) text += fmt::format(" (rank {}: {})", rank.value, how);
  return text;
}

Actions Membership::give_up(Kind kind, std::string text, Rank about) {
  GiveUp action{{kind, "rendezvous: " + std::move(text), about}, guests()};
  waiting_.clear();
  strayed_.clear();
  return {action};
}

}  // namespace cohort::group
