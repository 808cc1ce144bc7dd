// A row of the table of loss-scale rules (scale_rules.cc): the constants that tell one framework's habit from another's. For loss_scale.cc.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "cohort/base/spec.h"

namespace cohort::optim {

// Constants are defaults; those that the framework lets its users choose are parameters of the spec, the others are the row's own.
struct ScaleRule {
  std::string_view name, about;
  double init = 1, up = 2, down = 0.5;
  std::int64_t window = 0;      // steps without overflow before it grows; 0: never changes
  std::int64_t hysteresis = 0;  // overflows it takes to fall; refilled when it grows, or by every good step. 0: the rule has none, one does
  double min = 0;               // an overflow there is a failure; 0: it falls on, down to the smallest normal float
  bool late = false;            // the first growth, and the first after an overflow, comes one good step later than `window`
};

std::span<const ScaleRule* const> scale_rules();
SpecSchema scale_schema(const ScaleRule& rule);

}  // namespace cohort::optim
