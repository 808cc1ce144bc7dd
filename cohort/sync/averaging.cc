#include "cohort/sync/averaging.h"

namespace cohort::sync {

SpecParam every_param(std::string_view preset) {
  return {.name = "h",
          .type = SpecParam::Type::integer,
          .doc = "steps that a rank makes by itself between two rounds",
          .preset = std::string(preset),
          .low = 1,
          .high = 1e9};
}

}  // namespace cohort::sync
