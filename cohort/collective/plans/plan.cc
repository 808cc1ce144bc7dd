#include "cohort/collective/plans/plan.h"

#include <algorithm>

#include "cohort/base/bytes.h"

namespace cohort::collective {

Range part_of(std::size_t count, int parts, int index, std::size_t grain) {
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t each = round_up((count + n - 1) / n, grain);
  const std::size_t first = std::min(count, static_cast<std::size_t>(index) * each);
  return {first, std::min(count, first + each)};
}

}  // namespace cohort::collective
