// A row of the table of loss-scale rules (scale_rules.cc): the constants that tell one framework's habit from another's. For loss_scale.cc.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "cohort/base/spec.h"

namespace cohort::optim {

// What happens to a scale that has fallen as far as it may.
enum class Floor : std::uint8_t {
  none,        // falls on, down to the smallest normal float
  clamp,       // stays at `min`
  fail_at,     // stays at `min`; an overflow there is a failure
  fail_below,  // a fall to `min` or below it is a failure
};

// Constants are defaults; those that the framework lets its users choose are parameters of the spec, the others are the row's own.
struct ScaleRule {
  std::string_view name, about;
  double init = 1, up = 2, down = 0.5;
  std::int64_t window = 0;          // steps without overflow before it grows; 0: never changes
  std::int64_t hysteresis = 0;      // overflows it takes to fall; refilled when it grows. 0: the rule knows no such thing, and one does
  bool may_be_consecutive = false;  // `consecutive_hysteresis`: refilled by every good step instead
  bool has_tolerance = false;       // falls only when this share of the steps since the last change overflowed
  double min = 0, max = 0;          // 0: none
  Floor floor = Floor::none;
  bool has_max = false;
  bool late = false;  // the first growth, and the first after an overflow, comes one good step later than `window`
};

std::span<const ScaleRule* const> scale_rules();
SpecSchema scale_schema(const ScaleRule& rule);

}  // namespace cohort::optim
