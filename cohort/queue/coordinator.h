// Rank 0's desk: requests come in, responses go out. Names and ids on one side, the Negotiator's facts on the other. Pure, like it.
// Owner: rank 0's lane, which alone calls it. Failure: Kind::corrupt when a rank breaks the protocol.
#pragma once
#include <optional>

#include "cohort/queue/cache.h"
#include "cohort/queue/message.h"
#include "cohort/queue/negotiator.h"

namespace cohort::queue {

class Coordinator {
 public:
  Coordinator(int ranks, Rules rules, std::size_t cache_capacity) : negotiator_(ranks, std::move(rules)), keeper_(ranks, cache_capacity) {}

  // nullopt: nothing to tell anyone.
  std::optional<Response> hear(Rank from, const Request& request, Clock::time_point now);
  std::optional<Response> look(Clock::time_point now);  // nothing came, but time has passed
  std::optional<Clock::time_point> next_look() const { return negotiator_.next_look(); }
  Response farewell(std::string text);  // rank 0 is going: the last response

 private:
  Negotiator negotiator_;
  NameKeeper keeper_;
  std::uint64_t number_ = 0;
};

}  // namespace cohort::queue
