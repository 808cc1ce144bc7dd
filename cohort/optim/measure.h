// Squared norm and finiteness of a gradient in one read at memory speed.
// Bracket of the sum, the same on every instruction set and for every alignment: squares are taken in double; a block is 4096 elements
// from the start of the run; in a block element i joins lane i % 16, lanes fold as a binary tree (8 + 8, 4 + 4, ...), and blocks are
// added one after the other to `before`. So a run cut at multiples of 4096 and measured piece after piece gives the bits of the whole.
// Owner: none. Threads: any. It never fails: what is not finite is the answer.
#pragma once
#include <cstddef>

#include "cohort/optim/optimizer.h"

namespace cohort::optim {

inline constexpr std::size_t kMeasureBlock = 4096;  // elements; 16 KiB of f32 stay in L1 while a suspicious block is read again
inline constexpr std::size_t kMeasureLanes = 16;    // enough independent sums to hide the latency of an addition

struct Measure {
  double squared = 0;  // not finite when an element is not, or, f64 only, when a square overflows
  bool finite = true;  // of every element
  bool operator==(const Measure&) const = default;
};

Measure measure(const void* data, std::size_t count, Real dtype, Measure before = {});
double squared_norm(const void* data, std::size_t count, Real dtype);
bool all_finite(const void* data, std::size_t count, Real dtype);

// What to multiply gradients with so that their norm is at most `limit`; 1 where it already is. torch: min(1, limit / (norm + 1e-6)).
double clip_coefficient(double squared, double limit);

}  // namespace cohort::optim
