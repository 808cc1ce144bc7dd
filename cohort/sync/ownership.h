// Which rank updates what of a bucket: rank r owns the elements [edges[r], edges[r + 1]) of its flat memory. A pure function of the layout.
// Edges are tensors' starts, or lie whole blocks of measuring (optim/measure.h) behind one: so no block is cut, squared norms have the same
// bits however many ranks share the work, and every piece starts on a 64-byte boundary. Pieces differ by a block at most; with more ranks
// than blocks some own nothing.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "cohort/base/piece.h"

namespace cohort::sync {

using Range = ElementRange;

// tensors: in the order they lie in memory. total: elements of the whole, with the gaps.
std::vector<std::size_t> cut(std::span<const Range> tensors, std::size_t total, int ranks);

}  // namespace cohort::sync
