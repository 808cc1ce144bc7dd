// Which file gets which elements: integers only.
#include <algorithm>

#include "cohort/checkpoint/reshard.h"

namespace cohort::checkpoint {
namespace {

std::uint64_t blocks_of(const StoredTensor& t) { return (t.elements() + kCutBlock - 1) / kCutBlock; }

}  // namespace

std::vector<Cut> plan_cuts(std::span<const StoredTensor* const> tensors, std::size_t files) {
  std::uint64_t blocks = 0;
  for (const StoredTensor* t : tensors) blocks += blocks_of(*t);
  const std::uint64_t each = std::max<std::uint64_t>(1, (blocks + files - 1) / files);
  const auto file_of = [&](std::uint64_t block) { return static_cast<std::size_t>(std::min<std::uint64_t>(block / each, files - 1)); };
  std::vector<Cut> cuts;
  std::uint64_t start = 0;  // block of the group at which the tensor begins
  for (const StoredTensor* t : tensors) {
    if (t->elements() == 0) cuts.push_back({t, 0, 0, file_of(start)});
    for (std::uint64_t at = 0; at < t->elements();) {
      const std::size_t file = file_of(start + at / kCutBlock);
      const std::uint64_t rest = t->elements() - at, space = ((file + 1) * each - start) * kCutBlock - at;
      const std::uint64_t count = file + 1 == files ? rest : std::min(rest, space);
      cuts.push_back({t, at, count, file});
      at += count;
    }
    start += blocks_of(*t);
  }
  return cuts;
}

}  // namespace cohort::checkpoint
