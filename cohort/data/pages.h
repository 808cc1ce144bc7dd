// The data sets, transforms and samplers there are, those of plugins too, for `cohort data` (base/spec_page.h prints them).
// Owner: values. Threads: any. Failure: none.
#pragma once
#include <vector>

#include "cohort/base/spec_page.h"

namespace cohort::data {

inline constexpr const char* kPagesHead =
    "# Data sets, transforms and samplers\n\n"
    "Written by `cohort data --markdown`. What holds for all of them: [data](data.md).\n";

std::vector<SpecPage> spec_pages();

}  // namespace cohort::data
