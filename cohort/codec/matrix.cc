#include "cohort/codec/matrix.h"

#include <algorithm>
#include <cmath>

#include "cohort/codec/loops.h"

namespace cohort::codec {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kTile = 512;         // columns of sums in the L1: 4 KiB for each k
constexpr double kDependent = 1e-10;       // of a column's norm: what doubles leave of one that lies in the span of others
constexpr std::uint64_t kDraw = 1u << 20;  // numbers of one column in the stream lie so far from those of its next try

template <class A>
COHORT_INLINE double dot_loop(const A* a, const double* b, std::size_t count) {
  double lanes[kLanes]{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += static_cast<double>(a[i + k]) * b[i + k];
  for (std::size_t k = 0; i + k < count; ++k) lanes[k] += static_cast<double>(a[i + k]) * b[i + k];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}
COHORT_INLINE void product_loop(const float* m, std::size_t rows, const Columns& q, Columns& p) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < q.count; ++k) p.at(k)[i] = dot_loop(m + i * q.height, q.at(k), q.height);
}
void product_plain(const float* m, std::size_t rows, const Columns& q, Columns& p) { product_loop(m, rows, q, p); }
COHORT_FOR_AVX2 void product_avx2(const float* m, std::size_t rows, const Columns& q, Columns& p) { product_loop(m, rows, q, p); }

double dot_plain(const double* a, const double* b, std::size_t count) { return dot_loop(a, b, count); }
COHORT_FOR_AVX2 double dot_avx2(const double* a, const double* b, std::size_t count) { return dot_loop(a, b, count); }
double dot(const double* a, const double* b, std::size_t count) {
  return current_isa() == Isa::avx2 ? dot_avx2(a, b, count) : dot_plain(a, b, count);
}

struct AddProduct {  // y += a x
  double* y;
  const float* x;
  double a;
  COHORT_INLINE void operator()(std::size_t j) const { y[j] += a * static_cast<double>(x[j]); }
};
struct Subtract {  // y -= a x
  double* y;
  const double* x;
  double a;
  COHORT_INLINE void operator()(std::size_t j) const { y[j] -= a * x[j]; }
};
struct Divide {
  double* y;
  double by;
  COHORT_INLINE void operator()(std::size_t j) const { y[j] /= by; }
};

COHORT_INLINE void outer_loop(const Columns& p, const Columns& q, std::size_t row, std::size_t first, std::size_t count, float* out) {
  for (std::size_t j = 0; j < count; ++j) {
    double sum = 0;
    for (std::size_t k = 0; k < p.count; ++k) sum += p.values[k * p.height + row] * q.values[k * q.height + first + j];
    out[j] = static_cast<float>(sum);
  }
}
// One and two columns, the ranks that are used most, without the inner loop.
struct Outer1 {
  const double* a;
  double x;
  float* out;
  COHORT_INLINE void operator()(std::size_t j) const { out[j] = static_cast<float>(0.0 + x * a[j]); }
};
struct Outer2 {
  const double *a, *b;
  double x, y;
  float* out;
  COHORT_INLINE void operator()(std::size_t j) const { out[j] = static_cast<float>(0.0 + x * a[j] + y * b[j]); }
};
void outer_row(const Columns& p, const Columns& q, std::size_t row, std::size_t first, std::size_t count, float* out) {
  if (p.count == 1) return for_each_index(Outer1{q.at(0) + first, p.at(0)[row], out}, count);
  if (p.count == 2) return for_each_index(Outer2{q.at(0) + first, q.at(1) + first, p.at(0)[row], p.at(1)[row], out}, count);
  outer_loop(p, q, row, first, count, out);
}

void draw(const Random& random, std::size_t k, std::uint64_t turn, std::span<double> to) {
  for (std::size_t j = 0; j < to.size(); ++j) to[j] = 2 * static_cast<double>(random.uniform((k * kDraw + turn) * kDraw + j)) - 1;
}

// What is left of column k beside those before it, of length 1. False: nothing is.
bool orthonormal(Columns& columns, std::size_t k) {
  double* const v = columns.at(k);
  const std::size_t n = columns.height;
  const double before = std::sqrt(dot(v, v, n));
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t l = 0; l < k; ++l) for_each_index(Subtract{v, columns.at(l), dot(v, columns.at(l), n)}, n);
  const double after = std::sqrt(dot(v, v, n));
  if (std::isfinite(before) && after <= kDependent * before) return false;  // what is not finite spreads
  for_each_index(Divide{v, after}, n);
  return true;
}

}  // namespace

Columns product(const float* m, std::size_t rows, const Columns& q) {
  Columns p{rows, q.count};
  current_isa() == Isa::avx2 ? product_avx2(m, rows, q, p) : product_plain(m, rows, q, p);
  return p;
}

Columns transposed_product(const float* m, std::size_t width, const Columns& p) {
  Columns q{width, p.count};
  for (std::size_t first = 0; first < width; first += kTile) {
    const std::size_t count = std::min(kTile, width - first);
    for (std::size_t i = 0; i < p.height; ++i)
      for (std::size_t k = 0; k < p.count; ++k) for_each_index(AddProduct{q.at(k) + first, m + i * width + first, p.at(k)[i]}, count);
  }
  return q;
}

void outer_product(const Columns& p, const Columns& q, std::size_t first, std::size_t count, float* out) {
  while (count > 0) {
    const std::size_t row = first / q.height, at = first % q.height, run = std::min(count, q.height - at);
    outer_row(p, q, row, at, run, out);
    first += run;
    count -= run;
    out += run;
  }
}

void orthonormalize(Columns& columns, const Random* fresh) {
  for (std::size_t k = 0; k < columns.count; ++k) {
    if (orthonormal(columns, k)) continue;
    const std::span<double> column(columns.at(k), columns.height);
    if (fresh != nullptr) {
      draw(*fresh, k, 0, column);
      if (orthonormal(columns, k)) continue;
    }
    std::fill(column.begin(), column.end(), 0.0);
  }
}

}  // namespace cohort::codec
