// The curvature that K-FAC keeps of one layer, W | b: rows for outputs, columns for inputs and one for the bias. Two sides, each a
// symmetric matrix: of what went in, A = mean of a a^T with a 1 behind a for the bias, and of the gradients of what came out, G.
//   statistics()    packed sums of this rank's samples; those of all ranks added, unpack() makes A and G of them
//   invert()        eigen: A = Q^T diag(d) Q, Q and d;   inverse: (A + ridge I)^-1
//   precondition()  eigen: V = Qg^T [(Qg M Qa^T) / (dg da^T + damping)] Qa;   inverse: V = G^-1 M A^-1
// Only + - * / and sqrt in one order: the same bits on every instruction set and any number of threads. Owner: values. Threads: any.
// Failure: invert() says no where numbers are not finite, or a matrix is not positive definite.
#pragma once
#include <cmath>
#include <vector>

#include "cohort/base/isa.h"
#include "cohort/base/symmetric_eigen.h"
#include "cohort/optim/side.h"

namespace cohort::optim::kfac {

// Where the numbers of a layer lie, in state and while a step is prepared: the side of inputs first, then that of outputs.
struct Size {
  std::size_t columns, rows;
  bool eigen;

  std::size_t inverse_of(std::size_t n) const { return n * n + (eigen ? n : 0); }
  std::size_t factors() const { return columns * columns + rows * rows; }
  std::size_t inverses() const { return inverse_of(columns) + inverse_of(rows); }
};

namespace inner {

COHORT_INLINE void add(double* to, const double* from, double factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}
inline void add_plain(double* to, const double* from, double factor, std::size_t n) { add(to, from, factor, n); }
COHORT_FOR_AVX2 inline void add_avx2(double* to, const double* from, double factor, std::size_t n) { add(to, from, factor, n); }

// The lower triangle of sum over rows of x x^T, and behind it that of a 1 beside x, if there is one.
template <class T>
void add_gram(const Algebra& algebra, const Piece& x, std::size_t rows, std::size_t width, bool one, double* packed) {
  auto* const data = static_cast<T*>(x.data);
  std::vector<T> gram(width * width);
  const Matrix<T> m(data, rows, width);
  algebra.multiply_symmetric<T>(1, m.transposed(), m, 0, {gram.data(), width, width});
  for (std::size_t i = 0; i < width; ++i)
    for (std::size_t j = 0; j <= i; ++j) *packed++ += static_cast<double>(gram[i * width + j]);
  if (!one) return;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < width; ++i) packed[i] += static_cast<double>(data[r * width + i]);
  packed[width] += static_cast<double>(rows);
}

inline void unpack_triangle(const double* packed, std::size_t n, double factor, double* out) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) out[i * n + j] = out[j * n + i] = factor * *packed++;
}

}  // namespace inner

constexpr std::size_t triangle(std::size_t n) { return n * (n + 1) / 2; }

// Of this rank: both triangles, rows, samples.
inline std::vector<double> statistics(const TappedLayer& layer, const Size& size, const Algebra& algebra) {
  std::vector<double> sums(triangle(size.columns) + triangle(size.rows) + 2);
  double* const outputs = sums.data() + triangle(size.columns);
  for (const Seen& seen : layer.seen) {
    const auto add = [&](auto zero) {
      using T = decltype(zero);
      inner::add_gram<T>(algebra, seen.inputs, seen.rows, layer.in, size.columns > layer.in, sums.data());
      inner::add_gram<T>(algebra, seen.gradients, seen.rows, layer.out, false, outputs);
    };
    seen.inputs.dtype == Dtype::f32 ? add(float{}) : add(double{});
    sums[sums.size() - 2] += static_cast<double>(seen.rows);
    sums.back() += static_cast<double>(seen.samples);
  }
  return sums;
}

// A = sum / rows, G = samples scale^2 sum: of the gradients of single samples' losses, whatever the batch. Empty: nothing was seen, or it
// is not finite.
inline std::vector<double> unpack(const std::vector<double>& sums, const Size& size, double scale) {
  const double rows = sums[sums.size() - 2], samples = sums.back();
  double all = 0;
  for (const double x : sums) all += std::abs(x);
  if (!(rows > 0) || !std::isfinite(all)) return {};
  std::vector<double> factors(size.factors());
  inner::unpack_triangle(sums.data(), size.columns, 1 / rows, factors.data());
  inner::unpack_triangle(sums.data() + triangle(size.columns), size.rows, samples * scale * scale,
                         factors.data() + size.columns * size.columns);
  return factors;
}

// a <- a^-1, by Cholesky's U^T U = a, row by row.
inline bool invert_positive(std::vector<double>& a, std::size_t n) {
  const auto add = current_isa() == Isa::avx2 ? inner::add_avx2 : inner::add_plain;
  const auto row = [&](std::vector<double>& m, std::size_t i) { return m.data() + i * n; };
  for (std::size_t k = 0; k < n; ++k) {
    const double pivot = a[k * n + k];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    const double root = std::sqrt(pivot);
    for (std::size_t j = k; j < n; ++j) a[k * n + j] /= root;
    for (std::size_t i = k + 1; i < n; ++i) add(row(a, i) + i, row(a, k) + i, -a[k * n + i], n - i);
  }
  std::vector<double> x(n * n);  // U^-T, then U^-1 of it: only what lies on and below the diagonal, the result is symmetric
  for (std::size_t k = 0; k < n; ++k) {
    x[k * n + k] = 1;
    for (std::size_t j = 0; j <= k; ++j) x[k * n + j] /= a[k * n + k];
    for (std::size_t i = k + 1; i < n; ++i) add(row(x, i), row(x, k), -a[k * n + i], k + 1);
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) add(row(x, k), row(x, j), -a[k * n + j], k + 1);
    for (std::size_t j = 0; j <= k; ++j) x[k * n + j] /= a[k * n + k];
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) x[j * n + i] = x[i * n + j];
  a.swap(x);
  return std::isfinite(a[0]);
}

// One side, n x n; out: inverse_of(n) numbers.
inline bool invert(std::vector<double> factor, std::size_t n, bool eigen, double ridge, double* out) {
  if (eigen) {
    const auto e = symmetric_eigen(std::move(factor), n);
    if (!e.converged) return false;
    std::copy(e.vectors.begin(), e.vectors.end(), out);
    std::transform(e.values.begin(), e.values.end(), out + n * n, [](double d) { return std::max(d, 0.0); });
    return true;
  }
  for (std::size_t i = 0; i < n; ++i) factor[i * n + i] += ridge;
  if (!invert_positive(factor, n)) return false;
  std::copy(factor.begin(), factor.end(), out);
  return true;
}

// m: rows x columns, becomes V.
template <class T>
void precondition(const Algebra& algebra, const Size& size, const T* inverses, T damping, std::vector<T>& m) {
  const std::size_t r = size.rows, c = size.columns;
  const Matrix<const T> a(inverses, c, c), g(inverses + size.inverse_of(c), r, r);
  std::vector<T> half(m.size());
  const Matrix<T> whole(m.data(), r, c), other(half.data(), r, c);
  algebra.multiply<T>(1, g, whole, 0, other);
  algebra.multiply<T>(1, other, a.transposed(), 0, whole);
  if (!size.eigen) return;
  const T *const da = inverses + c * c, *const dg = g.data + r * r;
  for (std::size_t i = 0; i < r; ++i)
    for (std::size_t j = 0; j < c; ++j) m[i * c + j] /= dg[i] * da[j] + damping;
  algebra.multiply<T>(1, g.transposed(), whole, 0, other);
  algebra.multiply<T>(1, other, a, 0, whole);
}

}  // namespace cohort::optim::kfac
