#include "cohort/data/limits.h"

#include <atomic>

namespace cohort::data {
namespace {

std::atomic<std::int64_t> max_pixels{InputLimits{}.max_pixels}, max_scans{InputLimits{}.max_scans},
    max_inflate_ratio{InputLimits{}.max_inflate_ratio};

}  // namespace

InputLimits input_limits() { return {.max_pixels = max_pixels, .max_scans = max_scans, .max_inflate_ratio = max_inflate_ratio}; }

void set_input_limits(const InputLimits& limits) {
  max_pixels = limits.max_pixels;
  max_scans = limits.max_scans;
  max_inflate_ratio = limits.max_inflate_ratio;
}

}  // namespace cohort::data
