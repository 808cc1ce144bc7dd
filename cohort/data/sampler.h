// A sampler says in which order an epoch visits the samples of a data set. It knows nothing of ranks: plan.h cuts the order into steps
// and ranks, so n ranks see together what one rank would see alone.
// Threads: any, pure functions. To add one: samplers/<word>.cc with `row_<word>`, the word in samplers/CMakeLists.txt, and its test.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::data {

struct Sampler {
  std::string_view name, about;
  bool once;  // an epoch visits every sample exactly once
  // `samples` indices in [0, samples), the same on every rank and platform.
  std::vector<std::int64_t> (*order)(std::int64_t samples, std::uint64_t seed, std::int64_t epoch);
};

std::span<const Sampler* const> sampler_rows();
const Sampler& sampler_named(std::string_view name);  // Kind::usage with the known names

// 0, 1, 2 .. samples - 1.
std::vector<std::int64_t> counting_order(std::int64_t samples);

}  // namespace cohort::data
