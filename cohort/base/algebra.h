// Products of matrices for what computes without torch: update rules that see whole tensors, codecs of low rank.
//   Algebra{}.multiply<float>(1, {x, m, n}, Matrix{x, m, n}.transposed(), 0, {gram, m, m});    // gram = x x^T
// Law: every element of the result is summed in the order of the inner dimension, each product and each addition rounded (no fused
// multiply-add). The bits are the same on every instruction set, for any number of threads and wherever memory is aligned.
// Owner: none, it has no memory of its own; an engine derives one that spreads jobs over its threads. Threads: any.
// Failure: Kind::bug for sizes that do not fit together.
#pragma once
#include <cstddef>
#include <functional>
#include <type_traits>

namespace cohort {

// A matrix in memory that others own; steps are in elements.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::size_t rows = 0, columns = 0, row_step = 0, column_step = 1;

  Matrix(T* at, std::size_t r, std::size_t c) : data(at), rows(r), columns(c), row_step(c) {}
  Matrix(T* at, std::size_t r, std::size_t c, std::size_t rs, std::size_t cs)
      : data(at), rows(r), columns(c), row_step(rs), column_step(cs) {}
  Matrix transposed() const { return {data, columns, rows, column_step, row_step}; }
  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return {data, rows, columns, row_step, column_step}; }
  T& at(std::size_t r, std::size_t c) const { return data[r * row_step + c * column_step]; }
};

class Algebra {
 public:
  Algebra() = default;
  Algebra(const Algebra&) = default;
  Algebra& operator=(const Algebra&) = default;
  virtual ~Algebra() = default;

  // job(0) .. job(jobs - 1), in any order and any number at once: those of this base one after another.
  virtual void run(std::size_t jobs, const std::function<void(std::size_t)>& job) const;

  // c <- alpha a b + beta c; with beta 0 what c held is not read. T: float or double. c overlaps neither a nor b.
  template <class T>
  void multiply(T alpha, std::type_identity_t<Matrix<const T>> a, std::type_identity_t<Matrix<const T>> b, T beta,
                std::type_identity_t<Matrix<T>> c) const;
  // The same where the product and c are symmetric, x x^T say: half of the work, and the same bits.
  template <class T>
  void multiply_symmetric(T alpha, std::type_identity_t<Matrix<const T>> a, std::type_identity_t<Matrix<const T>> b, T beta,
                          std::type_identity_t<Matrix<T>> c) const;
};

}  // namespace cohort
