// The plans of the all-reduce algorithms that run over links: integers only, tested without a network.
#pragma once
#include "cohort/collective/plans/plan.h"

namespace cohort::collective {

// Reduce-scatter around the ring, then all-gather around it. Bytes per rank: 2N(n-1)/n. Not canonical: the order of additions depends on
// the part.
Plan ring_plan(int rank, int ranks, std::size_t count);
// In round k, blocks of 2^k ranks exchange their sums with the block beside them. Latency log2(n), bytes N log2(n). Canonical.
Plan recursive_doubling_plan(int rank, int ranks, std::size_t count);
// Recursive halving: exchange halves, then quarters, ... with ever more distant ranks; then recursive doubling. Bytes 2N(n-1)/n, latency 2
// log2(n). Ranks beyond a power of two form smaller blocks, which fold into the larger ones in the canonical bracket.
Plan halving_doubling_plan(int rank, int ranks, std::size_t count);
// Reduce up a binomial tree to rank 0, then broadcast down it. Canonical.
Plan tree_plan(int rank, int ranks, std::size_t count);

// Ranks in a grid of rows, row by row. One half of the data is reduce-scattered along rows, all-reduced along columns and gathered along
// rows; the other half the other way round at the same time, so that links of both directions are busy. Bytes per rank: about
// 2N(n-1)/n, latency 2(rows + columns - 2) rings' steps instead of 2(n - 1). Not canonical.
struct Grid {
  int rows = 1, columns = 1;
};
Plan torus_plan(int rank, Grid grid, std::size_t count);
Grid squarest(int ranks);  // a prime number of ranks is one row

}  // namespace cohort::collective
