// Halving-doubling: reduce-scatter by recursive halving with distances 1, 2, 4 .., then all-gather by recursive doubling.
// n = 2^a + 2^b + .. (a > b > ..) makes blocks A, B, .. in rank order. Each block reduces among its own ranks; then the last block's sums
// fold into the block before it, and so on: A + (B + (C ..)), which is the canonical bracket. Results return the same way.
#include <bit>

#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {
namespace {

struct Block {
  int first = 0, width = 0;
};

std::vector<Block> blocks_of(int ranks) {
  std::vector<Block> blocks;
  for (int first = 0; first < ranks; first += blocks.back().width)
    blocks.push_back({first, static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - first)))});
  return blocks;
}

// What rank `place` of a block holds after halving over `width` ranks: bit 0 chose the half, bit 1 the quarter, ..
Range held(std::size_t count, int place, int width) {
  Range range{0, count};
  for (int bit = 1; bit < width; bit *= 2) {
    const std::size_t middle = range.first + range.size() / 2;
    (place & bit) == 0 ? range.last = middle : range.first = middle;
  }
  return range;
}

}  // namespace

Plan halving_doubling_plan(int rank, int ranks, std::size_t count) {
  Plan plan;
  const auto blocks = blocks_of(ranks);
  std::size_t at = 0;
  while (rank >= blocks[at].first + blocks[at].width) ++at;
  const auto [first, width] = blocks[at];
  const int place = rank - first;

  for (int bit = 1; bit < width; bit *= 2) {
    const int partner = place ^ bit;
    plan.push_back({first + partner, held(count, partner, 2 * bit), first + partner, held(count, place, 2 * bit),
                    place < partner ? Arrival::theirs_right : Arrival::theirs_left});
  }
  Plan back;  // the all-gather, last step first
  for (int bit = 1; bit < width; bit *= 2) {
    const int partner = place ^ bit;
    back.push_back({first + partner, held(count, place, 2 * bit), first + partner, held(count, partner, 2 * bit), Arrival::copy});
  }
  if (at + 1 < blocks.size()) {  // the smaller block behind us folds into us; it holds larger ranges than we do
    const auto [next, next_width] = blocks[at + 1];
    const int partner = next + place % next_width;
    plan.push_back({-1, {}, partner, held(count, place, width), Arrival::theirs_right});
    back.push_back({partner, held(count, place, width), -1, {}, Arrival::copy});
  }
  if (at > 0) {  // we fold into the larger block before us: each of its ranks with our low bits takes its part of our range
    const auto [before, before_width] = blocks[at - 1];
    Plan up;
    for (int p = place; p < before_width; p += width) {
      plan.push_back({before + p, held(count, p, before_width), -1, {}, Arrival::copy});
      up.push_back({-1, {}, before + p, held(count, p, before_width), Arrival::copy});
    }
    plan.insert(plan.end(), up.begin(), up.end());
  }
  plan.insert(plan.end(), back.rbegin(), back.rend());
  return plan;
}

namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  const double bytes = static_cast<double>(shape.bytes), n = shape.ranks, h = shape.hosts, most = shape.most;
  const double moved = bytes * (n - 1) / n;
  const bool folds = !std::has_single_bit(static_cast<unsigned>(shape.ranks));  // the ranks beyond a power of two: one more trip in and out
  const Seconds sums{crowding(shape) * moved / k.reduce_rate};
  if (!shape.mixed()) return link_cost(shape, k, {2.0 * log2_ceil(shape.ranks) + (folds ? 2 : 0), 2 * moved + (folds ? bytes : 0)}) + sums;
  return link_cost(shape, k,
                   {2.0 * log2_ceil(shape.most), 2 * bytes * (most - 1) / most, 2.0 * log2_ceil(shape.hosts) + (folds ? 2 : 0),
                    2 * bytes * (h - 1) / h + (folds ? bytes : 0)}) +
         sums;
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) {
  execute_plan(peers, data, how, halving_doubling_plan(peers.rank(), peers.size(), data.count));
}

}  // namespace

extern const AllReduce row_halving_doubling{.name = "halving_doubling",
                                            .about = "links, recursive halving, then doubling; few bytes in few rounds",
                                            .canonical = true,
                                            .cost = cost,
                                            .run = run};

}  // namespace cohort::collective
