#include "cohort/sync/ownership.h"

#include <algorithm>

#include "cohort/optim/measure.h"

namespace cohort::sync {
namespace {

std::size_t nearest_edge(std::span<const Range> tensors, std::size_t total, std::size_t wanted) {
  const auto behind = std::upper_bound(tensors.begin(), tensors.end(), wanted, [](std::size_t at, const Range& t) { return at < t.first; });
  if (behind == tensors.begin()) return 0;
  const Range& tensor = *(behind - 1);
  const std::size_t blocks = (wanted - tensor.first + optim::kMeasureBlock / 2) / optim::kMeasureBlock;
  const std::size_t edge = tensor.first + blocks * optim::kMeasureBlock;
  if (edge < tensor.last()) return edge;
  return behind == tensors.end() ? total : behind->first;
}

}  // namespace

std::vector<std::size_t> cut(std::span<const Range> tensors, std::size_t total, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> edges{0};
  for (std::size_t r = 1; r < n; ++r)
    edges.push_back(std::max(edges.back(), nearest_edge(tensors, total, total / n * r + total % n * r / n)));
  edges.push_back(total);
  return edges;
}

}  // namespace cohort::sync
