// Rank 0's side of the protocol: requests come in, responses go out. It translates between ids and names for the Negotiator. Pure, like it.
// Owner: rank 0's progress engine, which alone calls it. Failure: Kind::corrupt when a rank breaks the protocol.
#pragma once
#include <optional>

#include "cohort/queue/message.h"
#include "cohort/queue/name_cache.h"
#include "cohort/queue/negotiator.h"

namespace cohort::queue {

class Coordinator {
 public:
  Coordinator(int ranks, Rules rules, std::size_t cache_capacity)
      : negotiator_(ranks, std::move(rules)), registry_(ranks, cache_capacity) {}

  // nullopt: nothing to send.
  std::optional<Response> receive(Rank from, const Request& request, Clock::time_point now);
  std::optional<Response> tick(Clock::time_point now);  // nothing came, but time has passed
  std::optional<Clock::time_point> next_tick() const { return negotiator_.next_tick(); }
  Response closing_response(std::string text);  // rank 0 is closing: the last response

 private:
  Negotiator negotiator_;
  NameRegistry registry_;
  std::uint64_t number_ = 0;
};

}  // namespace cohort::queue
