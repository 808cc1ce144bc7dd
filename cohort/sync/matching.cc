#include "cohort/sync/matching.h"

#include <numeric>
#include <utility>

#include "cohort/codec/random.h"

namespace cohort::sync {

// Neighbours in a shuffled row (Fisher, Yates) are partners.
std::vector<int> matching(std::uint64_t seed, std::int64_t step, int ranks) {
  const codec::Random random = codec::Random(seed, static_cast<std::uint64_t>(step)).of("matching");
  std::vector<int> row(static_cast<std::size_t>(ranks)), partner(row.size());
  std::iota(row.begin(), row.end(), 0);
  std::iota(partner.begin(), partner.end(), 0);
  for (std::size_t i = row.size(); i > 1; --i) std::swap(row[i - 1], row[std::uint64_t{random.words(i)[0]} * i >> 32]);
  for (std::size_t i = 0; i + 1 < row.size(); i += 2) {
    partner[static_cast<std::size_t>(row[i])] = row[i + 1];
    partner[static_cast<std::size_t>(row[i + 1])] = row[i];
  }
  return partner;
}

std::vector<int> pulled_ranks(std::uint64_t seed, std::int64_t step, int ranks) {
  const codec::Random random = codec::Random(seed, static_cast<std::uint64_t>(step)).of("pulled ranks");
  std::vector<int> all(static_cast<std::size_t>(ranks), 0);
  for (std::size_t i = 0; i < all.size() && ranks > 1; ++i) {
    const auto other = static_cast<int>(std::uint64_t{random.words(i)[0]} * static_cast<std::uint64_t>(ranks - 1) >> 32);
    all[i] = other + (other >= static_cast<int>(i) ? 1 : 0);
  }
  return all;
}

}  // namespace cohort::sync
