#include "cohort/group/rendezvous_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::group {

RendezvousState::RendezvousState(RendezvousRules rules) : rules_(std::move(rules)) {}

Actions RendezvousState::join(ConnectionId connection_id, const Join& request, double now) {
  if (request.version != rules_.version) {
    const std::string who = fmt::format("rank {} (process {} on {})", request.member.rank.value, request.member.pid, request.member.host);
    const Error error{Kind::usage, another_version(who, request.version, rules_.job, rules_.version), request.member.rank};
    if (!waiting_.contains(request.member.rank)) disconnected_[request.member.rank] = error.what;
    return {Refuse{connection_id, error}};
  }
  if (auto error = objection(request)) return {Refuse{connection_id, *error}};
  if (waiting_.empty()) {
    since_ = now;
    warn_at_ = now + rules_.warn_after;
  }
  disconnected_.erase(request.member.rank);
  waiting_.emplace(request.member.rank, Waiting{connection_id, request.member});
  if (!ended_.empty()) return give_up(Kind::peer_lost, state_of_missing() + ": the job cannot start without it", ended_.begin()->first);
  if (static_cast<int>(waiting_.size()) < rules_.size) return {};
  Welcome welcome{{rules_.job, epoch_, {}}, connection_ids()};
  for (const auto& [rank, w] : waiting_) welcome.roster.members.push_back(w.member);
  ++epoch_.value;
  waiting_.clear();
  disconnected_.clear();
  return {welcome};
}

std::optional<Error> RendezvousState::objection(const Join& request) const {
  const Rank rank = request.member.rank;
  if (static_cast<int>(request.size) != rules_.size)
    return Error{Kind::usage,
                 fmt::format("rendezvous: rank {} expects {} ranks, job '{}' has {}", rank.value, request.size, rules_.job, rules_.size),
                 rank};
  if (rank.value < 0 || rank.value >= rules_.size)
    return Error{Kind::usage,
                 fmt::format("rendezvous: rank {} does not exist, job '{}' has ranks 0 to {}", rank.value, rules_.job, rules_.size - 1),
                 rank};
  const auto holder = waiting_.find(rank);
  if (holder == waiting_.end()) return std::nullopt;
  return Error{Kind::usage,
               fmt::format("rendezvous: rank {} of job '{}' is taken by process {} on {}; process {} on {} claims it too", rank.value,
                           rules_.job, holder->second.member.pid, holder->second.member.host, request.member.pid, request.member.host),
               rank};
}

Actions RendezvousState::left(ConnectionId connection_id, double) {
  const auto at =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) { return entry.second.connection_id == connection_id; });
  if (at == waiting_.end()) return {};
  disconnected_[at->first] = fmt::format("process {} on {} joined and disconnected", at->second.member.pid, at->second.member.host);
  waiting_.erase(at);
  return {};
}

Actions RendezvousState::ended(Rank rank, std::string how) {
  ended_.emplace(rank, std::move(how));
  if (waiting_.empty()) return {};
  // Even one that had joined: the roster is not complete, and never will be.
  waiting_.erase(rank);
  return give_up(Kind::peer_lost, state_of_missing() + ": the job cannot start without it", rank);
}

Actions RendezvousState::tick(double now) {
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
               connection_ids()}};
}

std::optional<double> RendezvousState::next_tick() const {
  if (waiting_.empty()) return std::nullopt;
  return std::min(warn_at_, since_ + rules_.start_timeout);
}

std::vector<Rank> RendezvousState::missing() const {
  std::vector<Rank> ranks;
  for (int r = 0; r < rules_.size; ++r)
    if (!waiting_.contains(Rank{r})) ranks.push_back(Rank{r});
  return ranks;
}

std::vector<ConnectionId> RendezvousState::connection_ids() const {
  std::vector<ConnectionId> all;
  for (const auto& [rank, w] : waiting_) all.push_back(w.connection_id);
  return all;
}

// The most useful fact about the missing ranks.
std::string RendezvousState::state_of_missing() const {
  if (!ended_.empty())
    return fmt::format("rank {} of {} ended before all had joined ({})", ended_.begin()->first.value, rules_.size, ended_.begin()->second);
  const auto absent = missing();
  std::string text = fmt::format("{} of {} {} not joined", name_ranks(absent), rules_.size, absent.size() == 1 ? "has" : "have");
  for (const auto& [rank, how] : disconnected_) text += fmt::format(" (rank {}: {})", rank.value, how);
  return text;
}

Actions RendezvousState::give_up(Kind kind, std::string text, Rank about) {
  GiveUp action{{kind, "rendezvous: " + std::move(text), about}, connection_ids()};
  waiting_.clear();
  disconnected_.clear();
  return {action};
}

}  // namespace cohort::group
