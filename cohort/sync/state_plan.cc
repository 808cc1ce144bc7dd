#include "cohort/sync/state_plan.h"

#include "cohort/base/bytes.h"

namespace cohort::sync {

StatePlan plan_state(const std::vector<std::vector<optim::StateSpec>>& states, const std::vector<int>& owner, int ranks) {
  StatePlan plan{.places = {}, .bytes = std::vector<std::size_t>(static_cast<std::size_t>(ranks))};
  for (std::size_t i = 0; i < states.size(); ++i) {
    std::size_t& next = plan.bytes[static_cast<std::size_t>(owner[i])];
    plan.places.emplace_back();
    for (const optim::StateSpec& s : states[i]) {
      plan.places.back().push_back(next);
      next = round_up(next + optim::count_of(s.shape) * size_of(s.dtype), kCacheLine);
    }
  }
  return plan;
}

}  // namespace cohort::sync
