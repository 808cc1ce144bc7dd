#include "cohort/data/sampler.h"

#include <numeric>

#include "cohort/base/registry.h"
#include "cohort/data/samplers_rows.inc"

namespace cohort::data {

std::span<const Sampler* const> sampler_rows() { return kSamplersRows; }

const Sampler& sampler_named(std::string_view name) { return find_row(sampler_rows(), name, "sampler"); }

std::vector<std::int64_t> counting_order(std::int64_t samples) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

}  // namespace cohort::data
