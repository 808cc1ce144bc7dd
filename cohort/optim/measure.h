// Squared norm and finiteness of a gradient in one read at memory speed.
// Order of the sum, the same on every instruction set and for every alignment: squares are taken in double; a block is 256 elements
// from the start of the run; in a block element i joins lane i % 16, lanes fold as a binary tree (8 + 8, 4 + 4, ...), and the sums of
// blocks are added without rounding (exact_sum.h). So a tensor cut at multiples of 256 and measured piece by piece, in any order and by
// any number of ranks, gives the bits of the whole.
// Owner: none. Threads: any. It never fails: what is not finite is the answer. dtype: f32 or f64.
#pragma once
#include <cstddef>

#include "cohort/optim/exact_sum.h"
#include "cohort/optim/optimizer.h"

namespace cohort::optim {

inline constexpr std::size_t kMeasureBlock = 256;  // elements: where tensors may be cut; adding a block's sum costs a tenth of reading it
inline constexpr std::size_t kMeasureLanes = 16;   // enough independent sums to hide the latency of an addition

struct Measure {
  ExactSum squared;    // infinite when an element is not finite, or, f64 only, when a square overflows
  bool finite = true;  // of every element
};

void measure(const void* data, std::size_t count, Dtype dtype, Measure& sum);  // adds to what was found before
void add_squares(const void* data, std::size_t count, Dtype dtype, ExactSum& sum);
// Of a run of the slice, as long as it is, wherever it lies.
void add_squares(const Slice& slice, const void* data, ExactSum& sum);
double block_squares(const void* data, std::size_t count, Dtype dtype);  // of one block
double squared_norm(const void* data, std::size_t count, Dtype dtype);
bool all_finite(const void* data, std::size_t count, Dtype dtype);

// What to multiply gradients with so that their norm is at most `limit`; 1 where it already is. torch: min(1, limit / (norm + 1e-6)).
double clip_coefficient(double squared, double limit);

}  // namespace cohort::optim
