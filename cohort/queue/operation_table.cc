#include "cohort/queue/operation_table.h"

namespace cohort::queue {

std::shared_ptr<Submission> OperationTable::open(Operation operation, Clock::time_point now) {
  if (operation.name.empty()) operation.name = fmt::format("{}.{}", name_of(operation.collective), unnamed_[operation.collective]++);
  const auto at = names_.find(operation.name);
  if (at != names_.end() && reserved(at->second, now)) {
    throw_failure(Kind::usage,
                  "Duplicate tensor name '{}': an operation of that name is still in flight on this rank; "
                  "wait for it first, or give each operation its own name",
                  operation.name);
  }
  auto submission = std::make_shared<Submission>(std::move(operation), now);
  names_.insert_or_assign(submission->name, Entry{submission});
  ++in_flight_;
  return submission;
}

std::shared_ptr<Submission> OperationTable::find(std::string_view name) const {
  const auto at = names_.find(std::string(name));
  return at == names_.end() || at->second.completed ? nullptr : at->second.submission;
}

void OperationTable::complete(const std::shared_ptr<Submission>& submission, Clock::time_point now) {
  Entry& entry = names_.at(submission->name);
  if (entry.submission != submission || entry.completed) throw_failure(Kind::bug, "'{}' completed twice", submission->name);
  entry.completed = true;
  entry.completed_at = now;
  completed_.push_back(submission);
  --in_flight_;
  sweep(now);
}

std::vector<std::shared_ptr<Submission>> OperationTable::all() const {
  std::vector<std::shared_ptr<Submission>> submissions;
  for (const auto& [name, entry] : names_) {
    if (!entry.completed) submissions.push_back(entry.submission);
  }
  return submissions;
}

bool OperationTable::reserved(const Entry& entry, Clock::time_point now) const {
  if (!entry.completed) return true;
  return !entry.submission->observed() && now - entry.completed_at < window_;
}

void OperationTable::sweep(Clock::time_point now) {
  while (!completed_.empty()) {
    const auto at = names_.find(completed_.front()->name);
    const bool current = at != names_.end() && at->second.submission == completed_.front();
    if (current && reserved(at->second, now)) return;
    if (current) names_.erase(at);  // else the name has been submitted again since, or is gone
    completed_.pop_front();
  }
}

}  // namespace cohort::queue
