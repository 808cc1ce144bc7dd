// The inverse p-th root of a symmetric matrix without negative eigenvalues, a^(-1/p): what Shampoo's statistics become. Two ways, both in
// double, with a ridge for what is singular: r = eps max(largest eigenvalue, 1e-30).
//   eigen    a = V^T diag(l) V:  V^T diag((max(l, 0) + r)^(-1/p)) V
//   newton   coupled Newton iteration (Guo and Higham 2006), products of matrices only:
//            z = (1 + p) / (2 |a + r I|),  M = z (a + r I),  H = z^(1/p) I
//            T = (1 + 1/p) I - M / p,   H <- H T,   M <- T^p M,   until no element of M - I is above 1e-6
//            100 iterations at most; it ends when the error grows by a fifth, and H is then that of before. An error above 0.05 at the end
//            is tried again with ten times the ridge, five times.
// Law: both give the same root, with 1e-6 relative difference for a condition of 1e6; x = root: x^p (a + r I) = I.
// Owner: values. Threads: any. Failure: empty, for numbers that are not finite, or where newton ends with an error of 0.1 and more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/base/algebra.h"

namespace cohort::optim {

enum class RootBy : std::uint8_t { eigen, newton };

struct RootOptions {
  int p = 4;
  double eps = 1e-6;
  RootBy by = RootBy::eigen;
  int iterations = 100;  // of newton
};

// a: n x n. Empty: there is none.
std::vector<double> inverse_root(const std::vector<double>& a, std::size_t n, const RootOptions& options);

}  // namespace cohort::optim
