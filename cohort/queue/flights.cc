#include "cohort/queue/flights.h"

namespace cohort::queue {

std::shared_ptr<Ticket> Flights::open(Operation operation, Clock::time_point now) {
  if (operation.name.empty()) operation.name = fmt::format("{}.{}", name_of(operation.verb), unnamed_[operation.verb]++);
  const auto at = names_.find(operation.name);
  if (at != names_.end() && reserved(at->second, now)) {
    throw_failure(Kind::usage,
                  "Duplicate tensor name '{}': an operation of that name is still in flight on this rank; "
                  "wait for it first, or give each operation its own name",
                  operation.name);
  }
  auto ticket = std::make_shared<Ticket>(std::move(operation));
  names_.insert_or_assign(ticket->name, Entry{ticket});
  ++flying_;
  return ticket;
}

std::shared_ptr<Ticket> Flights::find(std::string_view name) const {
  const auto at = names_.find(std::string(name));
  return at == names_.end() || at->second.landed ? nullptr : at->second.ticket;
}

void Flights::land(const std::shared_ptr<Ticket>& ticket, Clock::time_point now) {
  Entry& entry = names_.at(ticket->name);
  if (entry.ticket != ticket || entry.landed) throw_failure(Kind::bug, "'{}' landed twice", ticket->name);
  entry.landed = true;
  entry.landed_at = now;
  landed_.push_back(ticket);
  --flying_;
  sweep(now);
}

std::vector<std::shared_ptr<Ticket>> Flights::all() const {
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (const auto& [name, entry] : names_) {
    if (!entry.landed) tickets.push_back(entry.ticket);
  }
  return tickets;
}

bool Flights::reserved(const Entry& entry, Clock::time_point now) const {
  if (!entry.landed) return true;
  return !entry.ticket->observed() && now - entry.landed_at < window_;
}

void Flights::sweep(Clock::time_point now) {
  while (!landed_.empty()) {
    const auto at = names_.find(landed_.front()->name);
    const bool current = at != names_.end() && at->second.ticket == landed_.front();
    if (current && reserved(at->second, now)) return;
    if (current) names_.erase(at);  // else the name has flown again since, or is gone
    landed_.pop_front();
  }
}

}  // namespace cohort::queue
