// A panel of b, as wide as two vectors and as high as the inner dimension, stays in the cache while all of a passes by it, six rows at a
// time. Both are copied into that order first, which is also where transposed ones are turned.
#include "cohort/base/algebra.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/isa.h"

namespace cohort {
namespace {

constexpr std::size_t kRows = 6;     // of a tile of c: its 12 vectors, two of b and one of a fill 15 of 16 registers
constexpr std::size_t kVectors = 2;  // side by side in a tile
constexpr std::size_t kVectorBytes = 32;

template <class T>
constexpr std::size_t kColumns = kVectors* kVectorBytes / sizeof(T);

template <class T>
struct VectorOf {
  using Type [[gnu::vector_size(kVectorBytes), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};

// One tile: kRows of a by a panel of b, in the order of the inner dimension.
template <class T>
COHORT_INLINE void tile(const T* a, const T* b, std::size_t inner, T* out) {
  using Vector = typename VectorOf<T>::Type;
  Vector sums[kRows][kVectors] = {};
  for (std::size_t k = 0; k < inner; ++k, a += kRows, b += kColumns<T>) {
    const auto* const row = reinterpret_cast<const Vector*>(b);
    const Vector left = row[0], right = row[1];
#pragma GCC unroll 6
    for (std::size_t i = 0; i < kRows; ++i) {
      sums[i][0] += a[i] * left;
      sums[i][1] += a[i] * right;
    }
  }
  std::memcpy(out, sums, sizeof sums);
}

template <class T>
void tile_plain(const T* a, const T* b, std::size_t inner, T* out) {
  tile(a, b, inner, out);
}
template <class T>
COHORT_FOR_AVX2 void tile_avx2(const T* a, const T* b, std::size_t inner, T* out) {
  tile(a, b, inner, out);
}

// `lines` lines of a matrix from line `first` on, side by side, one element of each in turn; zeros behind the last.
template <class T>
void pack(const Matrix<const T>& m, std::size_t first, std::size_t lines, T* out) {
  const std::size_t there = std::min(lines, m.rows - first);
  for (std::size_t k = 0; k < m.columns; ++k, out += lines) {
    const T* const from = m.data + first * m.row_step + k * m.column_step;
    for (std::size_t i = 0; i < there; ++i) out[i] = from[i * m.row_step];
    std::fill(out + there, out + lines, T{0});
  }
}

template <class T>
void store(const T* tile, T alpha, T beta, const Matrix<T>& c, std::size_t row, std::size_t column) {
  const std::size_t rows = std::min(kRows, c.rows - row), columns = std::min(kColumns<T>, c.columns - column);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      T& to = c.at(row + i, column + j);
      const T product = alpha * tile[i * kColumns<T> + j];
      to = beta == 0 ? product : product + beta * to;
    }
}

std::size_t parts(std::size_t whole, std::size_t part) { return (whole + part - 1) / part; }

// symmetric: tiles that lie below the diagonal are left out.
template <class T>
void product(const Algebra& algebra, T alpha, const Matrix<const T>& a, const Matrix<const T>& b, T beta, const Matrix<T>& c,
             bool symmetric) {
  if (a.columns != b.rows || a.rows != c.rows || b.columns != c.columns || (symmetric && c.rows != c.columns))
    throw_failure(Kind::bug, "a product of {} x {} and {} x {} into {} x {}", a.rows, a.columns, b.rows, b.columns, c.rows, c.columns);
  const std::size_t inner = a.columns, strips = parts(a.rows, kRows);
  std::vector<T> packed(strips * kRows * inner);
  algebra.run(strips, [&](std::size_t s) { pack(a, s * kRows, kRows, packed.data() + s * kRows * inner); });
  const auto make_tile = current_isa() == Isa::avx2 ? tile_avx2<T> : tile_plain<T>;
  algebra.run(parts(b.columns, kColumns<T>), [&](std::size_t p) {
    std::vector<T> panel(kColumns<T> * inner);
    pack(b.transposed(), p * kColumns<T>, kColumns<T>, panel.data());
    T found[kRows * kColumns<T>];
    for (std::size_t s = 0; s < strips && !(symmetric && s * kRows >= (p + 1) * kColumns<T>); ++s) {
      make_tile(packed.data() + s * kRows * inner, panel.data(), inner, found);
      store(found, alpha, beta, c, s * kRows, p * kColumns<T>);
    }
  });
}

}  // namespace

void Algebra::run(std::size_t jobs, const std::function<void(std::size_t)>& job) const {
  for (std::size_t i = 0; i < jobs; ++i) job(i);
}

template <class T>
void Algebra::multiply(T alpha, std::type_identity_t<Matrix<const T>> a, std::type_identity_t<Matrix<const T>> b, T beta,
                       std::type_identity_t<Matrix<T>> c) const {
  product(*this, alpha, a, b, beta, c, false);
}

template <class T>
void Algebra::multiply_symmetric(T alpha, std::type_identity_t<Matrix<const T>> a, std::type_identity_t<Matrix<const T>> b, T beta,
                                 std::type_identity_t<Matrix<T>> c) const {
  product(*this, alpha, a, b, beta, c, true);
  for (std::size_t i = 0; i < c.rows; ++i)
    for (std::size_t j = 0; j < i; ++j) c.at(i, j) = c.at(j, i);
}

template void Algebra::multiply<float>(float, Matrix<const float>, Matrix<const float>, float, Matrix<float>) const;
template void Algebra::multiply<double>(double, Matrix<const double>, Matrix<const double>, double, Matrix<double>) const;
template void Algebra::multiply_symmetric<float>(float, Matrix<const float>, Matrix<const float>, float, Matrix<float>) const;
template void Algebra::multiply_symmetric<double>(double, Matrix<const double>, Matrix<const double>, double, Matrix<double>) const;

}  // namespace cohort
