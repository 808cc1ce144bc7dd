#include "cohort/sync/ownership.h"

#include <algorithm>
#include <limits>

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

// cost[i]: the least sum of squares when the ranks so far have the first i tensors.
std::vector<std::size_t> cut_between(std::span<const Range> tensors, std::size_t total, std::vector<std::size_t>& load) {
  const std::size_t n = tensors.size(), ranks = load.size();
  std::vector<std::size_t> starts;
  for (const Range& t : tensors) starts.push_back(t.first);
  starts.push_back(total);
  std::vector<double> cost(n + 1, std::numeric_limits<double>::infinity()), next(n + 1);
  cost[0] = 0;
  std::vector<std::vector<std::size_t>> from(ranks, std::vector<std::size_t>(n + 1));
  for (std::size_t r = 0; r < ranks; ++r, cost.swap(next))
    for (std::size_t last = 0; last <= n; ++last) {
      next[last] = std::numeric_limits<double>::infinity();
      for (std::size_t first = 0; first <= last; ++first) {
        const auto own = static_cast<double>(load[r] + starts[last] - starts[first]);
        if (cost[first] + own * own >= next[last]) continue;
        next[last] = cost[first] + own * own;
        from[r][last] = first;
      }
    }
  std::vector<std::size_t> edges(ranks + 1, total);
  for (std::size_t r = ranks, last = n; r-- > 0;) {
    last = from[r][last];
    edges[r] = starts[last];
  }
  edges[0] = 0;
  for (std::size_t r = 0; r < ranks; ++r) load[r] += edges[r + 1] - edges[r];
  return edges;
}

}  // namespace cohort::sync
