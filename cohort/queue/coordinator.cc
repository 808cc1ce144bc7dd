#include "cohort/queue/coordinator.h"

namespace cohort::queue {

std::optional<Response> Coordinator::hear(Rank from, const Request& request, Clock::time_point now) {
  keeper_.obeyed(from, request.obeyed);
  for (const Entry& entry : request.entries) {
    switch (entry.says) {
      case Entry::Says::known: {
        const Named& named = keeper_.meaning(entry.id, from);
        negotiator_.submit(from, named.name, named.signature, now);
        break;
      }
      case Entry::Says::fresh: negotiator_.submit(from, entry.name, entry.signature, now); break;
      case Entry::Says::join: negotiator_.join(from); break;
      case Entry::Says::leave: negotiator_.leave(from); break;
    }
  }
  return look(now);
}

std::optional<Response> Coordinator::look(Clock::time_point now) {
  auto verdicts = negotiator_.take(now);
  if (verdicts.empty()) return std::nullopt;
  Response response{++number_};
  for (Verdict& verdict : verdicts) {
    Ruling& ruling = response.rulings.emplace_back();
    for (const Named& named : verdict.whom) {
      const bool remember = verdict.does == Verdict::Does::run;
      ruling.mentions.push_back(remember ? keeper_.mention(named, number_, response.forgotten)
                                         : Mention{kNoId, named.name, named.signature});
    }
    verdict.whom.clear();
    ruling.verdict = std::move(verdict);
  }
  return response;
}

Response Coordinator::farewell(std::string text) {
  Response response{++number_};
  response.rulings.push_back({.verdict = {.does = Verdict::Does::closed, .kind = Kind::aborted, .text = std::move(text)}});
  return response;
}

}  // namespace cohort::queue
