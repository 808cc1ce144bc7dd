#include "cohort/optim/matrix_root.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/symmetric_eigen.h"
#include "cohort/optim/exact_math.h"

namespace cohort::optim {
namespace {

using Numbers = std::vector<double>;

constexpr double kLeast = 1e-30;  // of a largest eigenvalue: where real_power is exact
constexpr double kDone = 1e-6, kGrowth = 1.2, kRetry = 0.05, kFailed = 0.1;
constexpr int kTries = 6, kPowerIterations = 100;

double inverse_root_of(double x, int p) { return real_power(x, -1.0 / p); }

Numbers by_eigen(const Numbers& a, std::size_t n, const RootOptions& options) {
  const auto e = symmetric_eigen(a, n);
  if (!e.converged) return {};
  double largest = kLeast;
  for (const double value : e.values) largest = std::max(largest, value);
  Numbers scaled = e.vectors, root(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    const double factor = inverse_root_of(std::max(e.values[i], 0.0) + options.eps * largest, options.p);
    for (std::size_t j = 0; j < n; ++j) scaled[i * n + j] *= factor;
  }
  const Matrix<const double> vectors(e.vectors.data(), n, n);
  Algebra{}.multiply_symmetric<double>(1, vectors.transposed(), {scaled.data(), n, n}, 0, {root.data(), n, n});
  return root;
}

double norm(const Numbers& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

double largest_eigenvalue(const Numbers& a, std::size_t n) {
  Numbers x(n), y(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = 1 + static_cast<double>(i % 7) / 8;  // beside no eigenvector that comes up
  double value = 0;
  for (int k = 0; k < kPowerIterations; ++k) {
    const double length = norm(x), before = value;
    if (!(length > 0)) return 0;
    for (double& component : x) component /= length;
    Algebra{}.multiply<double>(1, {a.data(), n, n}, {x.data(), n, 1}, 0, {y.data(), n, 1});
    value = norm(y);
    x.swap(y);
    if (std::abs(value - before) <= kDone * value) break;
  }
  return value;
}

// Of a with its ridge; its error is how far M is from I in the end.
class Newton {
 public:
  Newton(Numbers a, std::size_t n, int p) : n_(n), p_(p), m_(std::move(a)), h_(n * n), t_(n * n), next_(n * n), power_(n * n) {
    const double z = (1 + p) / (2 * norm(m_));
    for (double& x : m_) x *= z;
    for (std::size_t i = 0; i < n; ++i) h_[i * n + i] = 1 / inverse_root_of(z, p);
    error_ = distance();
  }
  double error() const { return error_; }
  Numbers iterate(int most) {
    for (int k = 0; k < most && error_ > kDone; ++k) {
      for (std::size_t i = 0; i < t_.size(); ++i) t_[i] = -m_[i] / p_;
      for (std::size_t i = 0; i < n_; ++i) t_[i * n_ + i] += 1 + 1.0 / p_;
      multiply(h_, t_, next_);
      raise();
      multiply(power_, m_, t_);
      m_.swap(t_);
      const double error = distance();
      if (!(error <= kGrowth * error_)) break;  // or NaN: the root of before is the better one
      h_.swap(next_);
      error_ = error;
    }
    return h_;
  }

 private:
  // All are functions of one matrix, so products commute and are symmetric.
  void multiply(Numbers& a, Numbers& b, Numbers& out) const {
    Algebra{}.multiply_symmetric<double>(1, {a.data(), n_, n_}, {b.data(), n_, n_}, 0, {out.data(), n_, n_});
  }
  // power <- t^p, by squaring from the highest bit of p down
  void raise() {
    Numbers square(n_ * n_);
    power_ = t_;
    int bit = 1;
    while (bit * 2 <= p_) bit *= 2;
    for (bit /= 2; bit > 0; bit /= 2) {
      multiply(power_, power_, square);
      power_.swap(square);
      if ((p_ & bit) == 0) continue;
      multiply(power_, t_, square);
      power_.swap(square);
    }
  }
  double distance() const {
    double most = 0;
    for (std::size_t i = 0; i < m_.size(); ++i) {
      const double off = std::abs(m_[i] - (i / n_ == i % n_ ? 1 : 0));
      most = off <= most ? most : off;  // in this order a NaN gets through
    }
    return most;
  }

  const std::size_t n_;
  const int p_;
  Numbers m_, h_, t_, next_, power_;
  double error_ = 0;
};

Numbers by_newton(const Numbers& a, std::size_t n, const RootOptions& options) {
  double ridge = options.eps * std::max(largest_eigenvalue(a, n), kLeast);
  for (int k = 0; k < kTries; ++k, ridge *= 10) {
    Numbers with = a;
    for (std::size_t i = 0; i < n; ++i) with[i * n + i] += ridge;
    Newton newton(std::move(with), n, options.p);
    Numbers root = newton.iterate(options.iterations);
    if (newton.error() <= kRetry || (k + 1 == kTries && newton.error() < kFailed)) return root;
  }
  return {};
}

}  // namespace

std::vector<double> inverse_root(const std::vector<double>& a, std::size_t n, const RootOptions& options) {
  if (!std::isfinite(norm(a))) return {};
  if (n == 1) return {inverse_root_of(std::max(a[0], 0.0) + options.eps * std::max(a[0], kLeast), options.p)};
  Numbers root = options.by == RootBy::eigen ? by_eigen(a, n, options) : by_newton(a, n, options);
  return std::isfinite(norm(root)) ? root : Numbers{};
}

}  // namespace cohort::optim
