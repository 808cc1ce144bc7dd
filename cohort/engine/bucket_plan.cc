#include "cohort/engine/bucket_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace cohort::engine {

std::vector<std::vector<std::size_t>> plan_buckets(std::span<const PlanTensor> tensors, std::size_t first_bytes, std::size_t bytes) {
  struct Open {
    std::size_t bucket = 0, held = 0;
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::map<int, Open> open;  // by kind
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto limit = [&](std::size_t bucket) { return bucket == 0 ? std::min(first_bytes, bytes) : bytes; };
    auto found = open.find(tensors[i].kind);
    const bool full = found != open.end() && bytes > 0 && found->second.held + tensors[i].bytes > limit(found->second.bucket);
    if (found == open.end() || full) {
      open[tensors[i].kind] = {buckets.size(), 0};
      found = open.find(tensors[i].kind);
      buckets.emplace_back();
    }
    buckets[found->second.bucket].push_back(i);
    found->second.held += tensors[i].bytes;
  }
  return buckets;
}

LaneChoice choose_lanes(int wanted, int cores, int ranks_here, std::size_t buckets, bool far) {
  if (wanted >= 0) return {wanted, fmt::format("{} lane{} as set", wanted, wanted == 1 ? "" : "s")};
  if (buckets < 2) return {0, "no lane: a single bucket is ready only when backward ends"};
  if (far) return {1, "1 lane: other hosts answer slowly, and waiting for them takes no core"};
  if (cores <= ranks_here)
    return {0, fmt::format("no lane: {} rank{} on {} core{} leave none free for it", ranks_here, ranks_here == 1 ? "" : "s", cores,
                           cores == 1 ? "" : "s")};
  return {1, fmt::format("1 lane: {} cores for {} rank{}", cores, ranks_here, ranks_here == 1 ? "" : "s")};
}

}  // namespace cohort::engine
