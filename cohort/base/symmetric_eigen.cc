#include "cohort/base/symmetric_eigen.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/isa.h"

namespace cohort {
namespace {

constexpr double kEpsilon = 0x1p-52;
constexpr int kStepsEach = 60;  // QR steps for each eigenvalue before it is given up; two are usual

// to += factor * from
COHORT_INLINE void add(double* to, const double* from, double factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}
// x and y turned in their plane
COHORT_INLINE void rotate(double* x, double* y, double c, double s, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const double old = x[i];
    x[i] = c * old + s * y[i];
    y[i] = c * y[i] - s * old;
  }
}
void add_plain(double* to, const double* from, double factor, std::size_t n) { add(to, from, factor, n); }
void rotate_plain(double* x, double* y, double c, double s, std::size_t n) { rotate(x, y, c, s, n); }
COHORT_FOR_AVX2 void add_avx2(double* to, const double* from, double factor, std::size_t n) { add(to, from, factor, n); }
COHORT_FOR_AVX2 void rotate_avx2(double* x, double* y, double c, double s, std::size_t n) { rotate(x, y, c, s, n); }

double dot(const double* x, const double* y, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

class Solver {
 public:
  Solver(std::vector<double> a, std::size_t n) : n_(n), a_(std::move(a)), diagonal_(n), beside_(n), vectors_(n * n) {
    for (std::size_t i = 0; i < n; ++i) vectors_[i * n + i] = 1;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < i; ++j) a_[j * n + i] = a_[i * n + j];
  }

  SymmetricEigen solve() {
    const double size = scale();
    if (!std::isfinite(size)) return {};
    for (std::size_t k = 0; k + 1 < n_; ++k) reflect(k);
    for (std::size_t i = 0; i < n_; ++i) diagonal_[i] = a_[i * n_ + i];
    const bool converged = diagonalise();
    for (double& value : diagonal_) value *= size;
    return {converged, std::move(diagonal_), std::move(vectors_)};
  }

 private:
  // To a largest element of 1, so that no square over- or underflows.
  double scale() {
    double most = 0;
    for (const double x : a_) most = std::isfinite(x) ? std::max(most, std::abs(x)) : INFINITY;
    if (most > 0 && std::isfinite(most))
      for (double& x : a_) x /= most;
    return most;
  }

  // Column k becomes zero below its first element beside the diagonal: a <- h a h with h = 1 - 2 v v^T / v^T v.
  void reflect(std::size_t k) {
    const std::size_t m = n_ - k - 1;
    std::vector<double> v(m), p(m);
    for (std::size_t i = 0; i < m; ++i) v[i] = a_[(k + 1 + i) * n_ + k];
    const double length = std::sqrt(dot(v.data(), v.data(), m));
    beside_[k] = v[0];
    if (m == 1 || length == std::abs(v[0])) return;
    beside_[k] = v[0] > 0 ? -length : length;
    v[0] -= beside_[k];
    const double factor = 2 / dot(v.data(), v.data(), m);
    for (std::size_t i = 0; i < m; ++i) add_(p.data(), row(a_, k + 1 + i) + k + 1, factor * v[i], m);
    add_(p.data(), v.data(), -factor / 2 * dot(v.data(), p.data(), m), m);
    for (std::size_t i = 0; i < m; ++i) {
      add_(row(a_, k + 1 + i) + k + 1, p.data(), -v[i], m);
      add_(row(a_, k + 1 + i) + k + 1, v.data(), -p[i], m);
    }
    std::vector<double> of_v(n_);
    for (std::size_t i = 0; i < m; ++i) add_(of_v.data(), row(vectors_, k + 1 + i), v[i], n_);
    for (std::size_t i = 0; i < m; ++i) add_(row(vectors_, k + 1 + i), of_v.data(), -factor * v[i], n_);
  }

  bool diagonalise() {
    const auto split = [&](std::size_t i) {
      return std::abs(beside_[i]) <= kEpsilon * (std::abs(diagonal_[i]) + std::abs(diagonal_[i + 1]));
    };
    std::size_t last = n_ == 0 ? 0 : n_ - 1;
    for (int steps = 0; last > 0; ++steps) {
      if (split(last - 1)) {
        --last, steps = 0;
        continue;
      }
      if (steps > kStepsEach) return false;
      std::size_t first = last - 1;
      while (first > 0 && !split(first - 1)) --first;
      if (first > 0) beside_[first - 1] = 0;
      step(first, last);
    }
    return true;
  }

  // One QR step on the rows first .. last: the rotation of the shifted matrix's first column, and those that chase what it leaves.
  void step(std::size_t first, std::size_t last) {
    const double gap = (diagonal_[last - 1] - diagonal_[last]) / 2, b = beside_[last - 1];
    const double root = std::sqrt(gap * gap + b * b);
    const double shift = diagonal_[last] - b * b / (gap >= 0 ? gap + root : gap - root);
    double x = diagonal_[first] - shift, z = beside_[first];
    for (std::size_t k = first; k < last; ++k) {
      const double length = std::sqrt(x * x + z * z), c = length > 0 ? x / length : 1, s = length > 0 ? z / length : 0;
      if (k > first) beside_[k - 1] = length;
      const double p = diagonal_[k], q = diagonal_[k + 1], e = beside_[k];
      diagonal_[k] = c * c * p + 2 * c * s * e + s * s * q;
      diagonal_[k + 1] = s * s * p - 2 * c * s * e + c * c * q;
      beside_[k] = (c * c - s * s) * e + c * s * (q - p);
      x = beside_[k];
      if (k + 1 < last) {
        z = s * beside_[k + 1];
        beside_[k + 1] *= c;
      }
      rotate_(row(vectors_, k), row(vectors_, k + 1), c, s, n_);
    }
  }

  double* row(std::vector<double>& m, std::size_t i) const { return m.data() + i * n_; }

  const std::size_t n_;
  const bool wide_ = current_isa() == Isa::avx2;
  void (*const add_)(double*, const double*, double, std::size_t) = wide_ ? add_avx2 : add_plain;
  void (*const rotate_)(double*, double*, double, double, std::size_t) = wide_ ? rotate_avx2 : rotate_plain;
  std::vector<double> a_, diagonal_, beside_, vectors_;
};

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> a, std::size_t n) { return Solver(std::move(a), n).solve(); }

}  // namespace cohort
