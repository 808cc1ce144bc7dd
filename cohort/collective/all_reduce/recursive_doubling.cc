// Recursive doubling: in round k, blocks of 2^k ranks exchange their sums with the block beside them. Fewest rounds, for small data.
#include <algorithm>

#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {

Plan recursive_doubling_plan(int rank, int ranks, std::size_t count) {
  Plan plan;
  const Range all{0, count};
  for (int width = 1; width < ranks; width *= 2) {
    const int first = rank / (2 * width) * (2 * width);  // of the pair of blocks: left has `width` ranks, right has `rights`
    const int rights = std::min(width, ranks - first - width);
    if (rights <= 0) continue;
    const int place = rank - first;
    if (place < width) {  // left block: our partner on the right also serves those of us it has no partner for
      const int partner = first + width + place % rights;
      plan.push_back({place < rights ? partner : -1, place < rights ? all : Range{}, partner, all, Arrival::theirs_right});
    } else {
      for (int lone = place - width + rights; lone < width; lone += rights) plan.push_back({first + lone, all, -1, {}, Arrival::copy});
      plan.push_back({rank - width, all, rank - width, all, Arrival::theirs_left});
    }
  }
  return plan;
}

namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  const double bytes = static_cast<double>(shape.bytes);
  const double rounds = log2_ceil(shape.ranks), far = log2_ceil(shape.hosts);
  const Seconds sums{crowding(shape) * rounds * bytes / k.reduce_rate};
  if (!shape.mixed()) return link_cost(shape, k, {rounds, rounds * bytes}) + sums;
  return link_cost(shape, k, {rounds - far, (rounds - far) * bytes, far, far * bytes * shape.most}) +
         sums;  // every rank of a host sends all
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) {
  execute_plan(peers, data, how, recursive_doubling_plan(peers.rank(), peers.size(), data.count));
}

}  // namespace

extern const AllReduce row_recursive_doubling{.name = "recursive_doubling",
                                              .about = "links, whole buffers exchanged in log2(n) rounds; lowest latency",
                                              .canonical = true,
                                              .cost = cost,
                                              .run = run};

}  // namespace cohort::collective
