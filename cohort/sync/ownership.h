// Which rank updates what of a bucket: rank r owns the elements [edges[r], edges[r + 1]) of its flat memory. A pure function of the layout.
// Edges are tensors' starts, or lie whole blocks of measuring (optim/measure.h) behind one: so no block is cut, squared norms have the same
// bits however many ranks share the work, and every piece starts on a 64-byte boundary. Pieces differ by a block at most; with more ranks
// than blocks some own nothing.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "cohort/base/piece.h"
#include "cohort/optim/optimizer.h"

namespace cohort::sync {

using Range = ElementRange;

// tensors: in the order they lie in memory. total: elements of the whole, with the gaps.
std::vector<std::size_t> cut(std::span<const Range> tensors, std::size_t total, int ranks);

// The same where tensors stay whole (optim::Grain::tensor): edges are tensors' starts. load: elements that each rank has of other buckets,
// to which its piece is added; the sum of their squares becomes as small as pieces in the order of the ranks allow.
std::vector<std::size_t> cut_between(std::span<const Range> tensors, std::size_t total, std::vector<std::size_t>& load);

// How a bucket is cut.
struct Cutting {
  optim::Grain grain = optim::Grain::block;
  std::vector<std::size_t>* load = nullptr;  // Grain::tensor: see above, of all ranks
};

}  // namespace cohort::sync
