// What codecs' files share: the walk over blocks, and the sum of payloads in the canonical bracket.
// Threads: pure, any. Failure: none.
#pragma once
#include <algorithm>
#include <array>

#include "cohort/base/bracket.h"
#include "cohort/codec/codec.h"
#include "cohort/codec/loops.h"

namespace cohort::codec {

// Some elements of one tensor, counted from its start.
struct Block {
  std::size_t tensor = 0;  // place in layout.tensors
  std::size_t at = 0;      // of its first element, in the layout
  std::size_t first = 0;   // of the same, in its tensor
  std::size_t count = 0;   // at most kBlock; fewer at a tensor's end only
};

// Calls visit(Block) for every block of tensor t's part of the range, in order.
template <class Visit>
void for_each_block_of(const Layout& layout, std::size_t t, const Range& range, const Visit& visit) {
  const TensorPlace& tensor = layout.tensors[t];
  const Range part = tensor.range().overlap(range);
  for (std::size_t at = part.first; at < part.last(); at += kBlock)
    visit(Block{t, at, at - tensor.first, std::min(kBlock, part.last() - at)});
}
// The same for every tensor.
template <class Visit>
void for_each_block(const Layout& layout, const Range& range, const Visit& visit) {
  for (std::size_t t = 0; t < layout.tensors.size(); ++t) for_each_block_of(layout, t, range, visit);
}

struct AddTo {
  float* sum;
  const float* x;
  COHORT_INLINE void operator()(std::size_t i) const { sum[i] += x[i]; }
};
struct ScaleBy {
  float* x;
  double factor;  // the double product, rounded once: as collectives scale
  COHORT_INLINE void operator()(std::size_t i) const { x[i] = static_cast<float>(static_cast<double>(x[i]) * factor); }
};

namespace inner {

template <class Decode>
void bracket(std::size_t low, std::size_t high, std::size_t count, const Decode& decode, float* sum) {
  if (high - low == 1) return decode(low, sum);
  const std::size_t middle = low + bracket_split(high - low);
  bracket(low, middle, count, decode, sum);
  std::array<float, kBlock> right;  // NOLINT: decode writes what is read
  bracket(middle, high, count, decode, right.data());
  for_each_index(AddTo{sum, right.data()}, count);
}

}  // namespace inner

// sum = scale * the canonical bracket over payloads, of at most kBlock elements. decode(k, to) writes payload k's.
template <class Decode>
void add_payloads(std::size_t payloads, std::size_t count, double scale, const Decode& decode, float* sum) {
  if (payloads == 0) return static_cast<void>(std::fill_n(sum, count, 0.0F));
  inner::bracket(0, payloads, count, decode, sum);
  if (scale != 1) for_each_index(ScaleBy{sum, scale}, count);  // 1 changes no bits
}

}  // namespace cohort::codec
