#include "cohort/queue/negotiator.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/text.h"
#include "cohort/queue/fusion.h"

namespace cohort::queue {

namespace {

using Action = Decision::Action;

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// Why an operation cannot run while some ranks have joined; empty when it can.
std::string_view objection_to_join(const Signature& signature) {
  if (signature.collective == Collective::barrier) return {};
  if (signature.collective != Collective::all_reduce) return "it needs data from every rank";
  if (signature.adasum) return "Adasum has no place for the zeros of a joined rank";
  if (!signature.codec.empty()) return "a codec needs a payload from every rank";
  if (signature.op != Op::sum && signature.op != Op::average) return "the zeros of a joined rank would change its result";
  return {};
}

Clock::time_point later(Clock::time_point at, Seconds by) { return at + std::chrono::duration_cast<Clock::duration>(by); }

}  // namespace

Negotiator::Negotiator(int ranks, Rules rules)
    : ranks_(ranks),
      rules_(std::move(rules)),
      last_(static_cast<std::size_t>(ranks)),
      joined_(static_cast<std::size_t>(ranks), false),
      left_(static_cast<std::size_t>(ranks), false) {}

void Negotiator::submit(Rank from, const std::string& name, const Signature& signature, Clock::time_point now) {
  const auto rank = static_cast<std::size_t>(from.value);
  last_[rank] = name;
  heard_ = now;
  auto known = by_name_.find(name);
  if (known == by_name_.end()) {
    const auto at = pending_.emplace(age_++, Pending{name, from, signature, now, std::vector<bool>(last_.size(), false)}).first;
    known = by_name_.emplace(name, at).first;
  }
  Pending& pending = known->second->second;
  if (pending.has[rank]) throw_failure(Kind::corrupt, "rank {} submitted '{}' twice at once", from.value, name);
  pending.has[rank] = true;
  ++pending.count;
  if (pending.problem.empty() && pending.first != from) {
    pending.problem = mismatch(name, label_of(pending.first.value), pending.signature, label_of(from.value), signature).value_or("");
  }
  if (!settle(pending)) return;
  pending_.erase(known->second);
  by_name_.erase(known);
}

void Negotiator::join(Rank from, Clock::time_point now) {
  const auto rank = static_cast<std::size_t>(from.value);
  if (joined_[rank]) throw_failure(Kind::corrupt, "rank {} joined twice", from.value);
  joined_[rank] = true;
  ++joined_count_;
  last_[rank] = "join";
  heard_ = now;
  settle_all();
  if (joined_count_ < ranks_) return;
  joined_.assign(joined_.size(), false);
  joined_count_ = 0;
  settled_.push_back({.action = Action::joined, .rank = from});
}

void Negotiator::leave(Rank from) {
  const auto rank = static_cast<std::size_t>(from.value);
  if (left_[rank]) return;
  left_[rank] = true;
  ++left_count_;
  settle_all();
}

std::vector<Decision> Negotiator::take(Clock::time_point now) {
  check_stalls(now);
  std::vector<Decision> decisions;
  std::vector<const Signature*> signatures;
  for (const NamedSignature& named : ready_) signatures.push_back(&named.signature);
  for (const auto& unit : fusion_plan(signatures, rules_.fusion_bytes)) {
    Decision& decision = decisions.emplace_back(Decision{.action = Action::run});
    for (const std::size_t i : unit) decision.affected.push_back(std::move(ready_[i]));
  }
  ready_.clear();
  std::move(settled_.begin(), settled_.end(), std::back_inserter(decisions));
  settled_.clear();
  return decisions;
}

std::optional<Clock::time_point> Negotiator::next_tick() const {
  const auto next = ends_at();
  if (rules_.warn_after <= Seconds{0}) return next;
  const auto unwarned = std::find_if(pending_.begin(), pending_.end(), [](const auto& row) { return !row.second.warned; });
  if (unwarned == pending_.end()) return next;
  const auto warning = later(unwarned->second.since, rules_.warn_after);
  return next ? std::min(*next, warning) : warning;
}

Rank Negotiator::label_of(int rank) const {
  return rules_.rank_labels.empty() ? Rank{rank} : rules_.rank_labels[static_cast<std::size_t>(rank)];
}

bool Negotiator::covered(const Pending& pending) const {
  if (pending.count == ranks_) return true;
  return pending.count + joined_count_ >= ranks_ && missing(pending).empty();
}

std::vector<int> Negotiator::missing(const Pending& pending) const {
  std::vector<int> ranks;
  for (int r = 0; r < ranks_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (!pending.has[i] && !joined_[i]) ranks.push_back(r);
  }
  return ranks;
}

bool Negotiator::settle(Pending& pending) {
  if (!covered(pending)) {
    if (left_count_ == 0) return false;
    for (const int r : missing(pending)) {
      if (!left_[static_cast<std::size_t>(r)]) continue;
      refuse(pending, Kind::aborted,
             fmt::format("rank {} has shut its queue down without submitting '{}'", label_of(r).value, pending.name));
      return true;
    }
    return false;
  }
  const auto why_not = pending.count < ranks_ ? objection_to_join(pending.signature) : std::string_view{};
  if (!pending.problem.empty()) {
    refuse(pending, Kind::usage, pending.problem);
  } else if (!why_not.empty()) {
    std::vector<int> absent;
    for (int r = 0; r < ranks_; ++r) {
      if (!pending.has[static_cast<std::size_t>(r)]) absent.push_back(label_of(r).value);
    }
    refuse(pending, Kind::usage,
           fmt::format("{} is not supported with join: {} joined before '{}', and {}; submit it on every rank before any joins",
                       horovod_name(pending.signature.collective), ranks_text(absent), pending.name, why_not));
  } else {
    ready_.push_back({pending.name, pending.signature});
  }
  return true;
}

void Negotiator::settle_all() {
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (!settle(at->second)) {
      ++at;
      continue;
    }
    by_name_.erase(at->second.name);
    at = pending_.erase(at);
  }
}

void Negotiator::refuse(const Pending& pending, Kind kind, std::string text) {
  settled_.push_back({.action = Action::refuse, .affected = {{pending.name}}, .kind = kind, .text = std::move(text)});
}

std::optional<Clock::time_point> Negotiator::ends_at() const {
  if (rules_.shutdown_after <= Seconds{0}) return std::nullopt;
  if (!pending_.empty()) return later(pending_.begin()->second.since, rules_.shutdown_after);
  return joined_count_ > 0 ? std::optional(later(heard_, rules_.shutdown_after)) : std::nullopt;
}

void Negotiator::close(std::string text) {
  const std::string limit = rules_.limit_name.empty() ? "" : fmt::format(" ({})", rules_.limit_name);
  text += fmt::format("\nThe limit of {}{} has passed, and every rank gets this error.", format_seconds(rules_.shutdown_after), limit);
  settled_.push_back({.action = Action::closed, .kind = Kind::timeout, .text = std::move(text)});
  pending_.clear();
  by_name_.clear();
  joined_.assign(joined_.size(), false);
  joined_count_ = 0;
}

void Negotiator::check_stalls(Clock::time_point now) {
  const auto end = ends_at();
  if (end && now >= *end) return close(pending_.empty() ? join_report() : stall_report(Clock::time_point::max(), rules_.shutdown_after));
  if (rules_.warn_after <= Seconds{0}) return;
  Decision stalled{.action = Action::stalled};
  for (auto& [age, pending] : pending_) {
    if (now < later(pending.since, rules_.warn_after)) break;
    if (!pending.warned) stalled.affected.push_back({pending.name});
    pending.warned = true;
  }
  if (stalled.affected.empty()) return;
  stalled.text = stall_report(now - std::chrono::duration_cast<Clock::duration>(rules_.warn_after), rules_.warn_after);
  settled_.push_back(std::move(stalled));
}

std::string Negotiator::stall_report(Clock::time_point before, Seconds after) const {
  std::map<int, std::vector<std::string>> waiting_for;
  for (const auto& [age, pending] : pending_) {
    if (pending.since > before) break;
    for (const int r : missing(pending)) waiting_for[label_of(r).value].push_back(pending.name);
  }
  std::string text = fmt::format(
      "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks "
      "for more than {}. Some rank took another path through the program, is slow, or is stuck.\nMissing ranks:",
      format_seconds(after));
  for (const auto& [rank, names] : waiting_for) text += fmt::format("\n{}: [{}]", rank, fmt::join(names, ", "));
  return text + last_submitted();
}

std::string Negotiator::join_report() const {
  std::vector<int> joined, others;
  for (int r = 0; r < ranks_; ++r) (joined_[static_cast<std::size_t>(r)] ? joined : others).push_back(label_of(r).value);
  return fmt::format("{} called join and {} did not, nor submitted anything for more than {}.{}", ranks_text(joined), ranks_text(others),
                     format_seconds(rules_.shutdown_after), last_submitted());
}

std::string Negotiator::last_submitted() const {
  std::string text = "\nLast submitted:";
  for (int r = 0; r < ranks_; ++r) {
    const std::string& last = last_[static_cast<std::size_t>(r)];
    text += fmt::format("\n{}: {}", label_of(r).value, last.empty() ? "nothing yet" : last);
  }
  return text;
}

}  // namespace cohort::queue
