// Eigenvalues and eigenvectors of a symmetric matrix: Householder reflections to a tridiagonal one, then implicit QR steps with Wilkinson's
// shift (Golub and Van Loan, Matrix Computations, 8.3). For roots and inverses of statistics in update rules.
//   auto e = symmetric_eigen(a, n);                  // a = sum over i of values[i] * row i of vectors, transposed, * row i
// Law: only + - * / and sqrt, in one order: the same bits on every instruction set. Residual and loss of orthogonality are some n * 2^-52
// of the largest eigenvalue.
// Owner: values. Threads: any. Failure: none for finite numbers; `converged` is false when some are not finite.
#pragma once
#include <cstddef>
#include <vector>

namespace cohort {

struct SymmetricEigen {
  bool converged = false;
  std::vector<double> values{};   // in no order
  std::vector<double> vectors{};  // n x n, row i belongs to values[i]
};

SymmetricEigen symmetric_eigen(std::vector<double> a, std::size_t n);  // a: n x n, row by row; the part above the diagonal is not read

}  // namespace cohort
