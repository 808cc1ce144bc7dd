#include "cohort/data/class_names.h"

#include <fmt/format.h>

#include "cohort/base/text.h"

namespace cohort::data {

std::string difference_of_classes(const ClassNames& a, const ClassNames& b) {
  if (a.names.empty()) return {};
  for (std::size_t i = 0; i < b.names.size(); ++i) {
    if (i >= a.names.size()) return fmt::format("class {} is '{}' in {} but missing in {}", i, printable(b.names[i]), b.source, a.source);
    if (a.names[i] != b.names[i])
      return fmt::format("class {} is '{}' in {} but '{}' in {}", i, printable(a.names[i]), a.source, printable(b.names[i]), b.source);
  }
  return {};
}

}  // namespace cohort::data
