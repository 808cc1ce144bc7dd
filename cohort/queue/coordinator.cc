#include "cohort/queue/coordinator.h"

namespace cohort::queue {

std::optional<Response> Coordinator::receive(Rank from, const Request& request, Clock::time_point now) {
  registry_.acknowledged(from, request.acknowledged);
  for (const Entry& entry : request.entries) {
    switch (entry.type) {
      case Entry::Type::known: {
        const NamedSignature& named = registry_.lookup(entry.id, from);
        negotiator_.submit(from, named.name, named.signature, now);
        break;
      }
      case Entry::Type::fresh: negotiator_.submit(from, entry.name, entry.signature, now); break;
      case Entry::Type::join: negotiator_.join(from, now); break;
      case Entry::Type::leave: negotiator_.leave(from); break;
    }
  }
  return tick(now);
}

std::optional<Response> Coordinator::tick(Clock::time_point now) {
  auto decisions = negotiator_.take(now);
  if (decisions.empty()) return std::nullopt;
  Response response{++number_};
  for (Decision& decision : decisions) {
    DecisionMessage& decision_message = response.decisions.emplace_back();
    for (const NamedSignature& named : decision.affected) {
      const bool remember = decision.action == Decision::Action::run;
      decision_message.name_refs.push_back(remember ? registry_.name_ref(named, number_, response.forgotten)
                                                    : NameRef{kNoId, named.name, named.signature});
    }
    decision.affected.clear();
    decision_message.decision = std::move(decision);
  }
  return response;
}

Response Coordinator::closing_response(std::string text) {
  Response response{++number_};
  response.decisions.push_back({.decision = {.action = Decision::Action::closed, .kind = Kind::aborted, .text = std::move(text)}});
  return response;
}

}  // namespace cohort::queue
