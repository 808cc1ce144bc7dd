// Values of a checkpoint that are inf or nan: a run that resumes from them is lost, whole as the files may be.
// Threads: any. Failure: as Contents::read().
#pragma once
#include <optional>
#include <set>
#include <string>

#include "cohort/checkpoint/contents.h"

namespace cohort::checkpoint {

// The first of these tensors of the group with such a value, by name. Reads them all, 1 MiB at a time; types without such values are
// passed.
std::optional<std::string> first_not_finite(const Contents& contents, std::string_view group, const std::set<std::string>& names);

bool all_finite(Dtype dtype, ConstBytes values);

}  // namespace cohort::checkpoint
