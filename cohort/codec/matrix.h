// Products of a matrix in fp32, rows one after the other, with a few columns in double: what a codec of low rank does, by loops of every
// instruction set of base/isa.h. Sums are in double and added in one order, so the bits are the same on each.
// Owner: values; memory is borrowed for the call. Threads: any. Failure: none; elements that are not finite make sums that are not.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "cohort/codec/random.h"

namespace cohort::codec {

// r columns of so many elements, one column after the other.
struct Columns {
  std::size_t height = 0, count = 0;
  std::vector<double> values = std::vector<double>(height * count);
  double* at(std::size_t k) { return values.data() + k * height; }
  const double* at(std::size_t k) const { return values.data() + k * height; }
};

// P = M Q of M with `rows` rows of q.height elements.
Columns product(const float* m, std::size_t rows, const Columns& q);
// Q = M^T P of M with p.height rows of `width` elements.
Columns transposed_product(const float* m, std::size_t width, const Columns& p);
// Elements [first, first + count) of P Q^T, rounded once.
void outer_product(const Columns& p, const Columns& q, std::size_t first, std::size_t count, float* out);

// Orthonormal columns that span what the columns did: Gram and Schmidt's, every column by itself and made orthogonal twice, since once
// leaves an error. A column that lies in the span of those before it becomes zero, or is drawn anew where `fresh` is given.
void orthonormalize(Columns& columns, const Random* fresh = nullptr);

}  // namespace cohort::codec
