// Which rank updates what of a bucket: rank r owns the elements [edges[r], edges[r + 1]) of its flat memory. A pure function of the layout.
// Edges are tensors' starts, or lie whole blocks of measuring (optim/measure.h) behind one: so no block is cut, squared norms have the same
// bits however many ranks share the work, and every piece starts on a 64-byte boundary. Pieces differ by a block at most; with more ranks
// than blocks some own nothing.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/piece.h"

namespace cohort::sync {

using Range = ElementRange;

// tensors: in the order they lie in memory. total: elements of the whole, with the gaps.
std::vector<std::size_t> cut(std::span<const Range> tensors, std::size_t total, int ranks);

// How the bucket's parts are spread over the ranks. Stage 0: every rank holds everything.
struct Sharding {
  int stage = 0, ranks = 1, me = 0;
  bool buddy = false;     // every rank also keeps what only the rank before it has
  bool host = false;      // offload=host: the model has copies of the parameters on a device of its own, everything else is here
  std::string offload{};  // a folder: state, and in stage 3 parameters, lie in files there
};

}  // namespace cohort::sync
