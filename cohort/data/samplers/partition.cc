// Shuffle, then partition: one permutation for each (seed, epoch), cut into disjoint parts for the ranks. Every sample once per epoch.
// Fisher-Yates: for i = n-1 .. 1 swap order[i] with order[j], j uniform in 0..i.
#include <utility>

#include "cohort/data/random.h"
#include "cohort/data/sampler.h"

namespace cohort::data {
namespace {

std::vector<std::int64_t> order(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> all = counting_order(samples);
  Rng rng(seed, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
  return all;
}

}  // namespace

extern const Sampler row_partition{
    .name = "partition", .about = "shuffle, then partition: every sample once per epoch", .once = true, .order = order};

}  // namespace cohort::data
