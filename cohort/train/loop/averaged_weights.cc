#include "cohort/train/loop/averaged_weights.h"

#include <algorithm>

#include "cohort/optim/averaged_rule.h"

namespace cohort::train {

AveragedWeights::AveragedWeights(engine::Engine& engine, bool any) : engine_(engine) {
  if (!any || engine.rule() == nullptr || !optim::evaluates_average(engine.rule()->spec())) return;
  change_places();
  engine_.publish_loaded_state();
}

AveragedWeights::~AveragedWeights() {
  if (changed_) change_places();
}

void AveragedWeights::end() {
  if (!changed_) return;
  change_places();
  engine_.publish_loaded_state();
}

// visit() has the states of a parameter right behind it, and of the same elements.
void AveragedWeights::change_places() {
  Piece parameter;
  engine_.visit([&](const StateItem& item) {
    if (item.group == "model") parameter = item.values;
    if (item.group != "optimizer" || item.state != optim::kAverageState) return;
    auto* const average = static_cast<std::byte*>(item.values.data);
    std::swap_ranges(average, average + item.values.bytes(), static_cast<std::byte*>(parameter.data));
  });
  changed_ = !changed_;
}

}  // namespace cohort::train
