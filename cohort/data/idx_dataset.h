// The reader of IDX folders, shared by `idx` and the names that know their own path.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "cohort/data/dataset.h"

namespace cohort::data {

// split: train or test. classes 0: one more than the largest label. hint: what to do when the files are not there.
std::shared_ptr<const Dataset> open_idx(const std::string& dir, std::string_view split, std::int64_t classes, std::string_view hint,
                                        std::vector<std::string> names = {});

}  // namespace cohort::data
