// Shuffle, then sample at random: every draw is uniform over the whole set, with replacement, so that ranks may see a sample twice in an
// epoch and others not at all (on average 37 % of them). An epoch is as many draws as there are samples.
#include "cohort/data/random.h"

#include "cohort/data/sampler.h"

namespace cohort::data {
namespace {

constexpr std::uint64_t kStream = 1;  // apart from the permutation of the same epoch

std::vector<std::int64_t> order(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> drawn(static_cast<std::size_t>(samples));
  Rng rng(seed, static_cast<std::uint64_t>(epoch), kStream);
  for (std::int64_t& index : drawn) index = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(samples)));
  return drawn;
}

}  // namespace

extern const Sampler row_random{
    .name = "random", .about = "uniform draws from the whole set, with replacement", .once = false, .order = order};

}  // namespace cohort::data
