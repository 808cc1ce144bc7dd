// Tensors of torch.distributed as Pieces of the engine.
// Verbs that only move bytes take every dtype: one of the engine's nine as itself, any other as bytes. Reductions take the nine.
// Threads: pure functions. Failure: Kind::usage with a sentence: on another device, sparse, a type that cannot be reduced.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "cohort/collective/types.h"

namespace cohort::python {

// The same memory (with sizes of its own: the user's may change) when its elements are one block, else a copy that is; `verb` is for the
// sentence.
at::Tensor dense(const at::Tensor& tensor, const char* verb);
// What was received into `memory` (from dense) reaches the user's tensor.
void give_back(const at::Tensor& memory, const at::Tensor& tensor);

collective::Piece moved(const at::Tensor& dense);  // elements, or bytes
// How many of moved()'s elements one element of the tensor is.
std::size_t width(at::ScalarType type);

// What a c10d::ReduceOp means to the engine.
struct Reducing {
  enum class Bits { none, band, bor, bxor };
  collective::Op op = collective::Op::sum;
  double prescale = 1.0;
  Bits bits = Bits::none;  // integers only; the engine has no such op, so ranks gather and combine
};
Reducing reducing(const c10d::ReduceOp& op, at::ScalarType type, const char* verb);
collective::Piece reduced(const at::Tensor& dense);
// rows of `gathered` (ranks, ...) combined in rank order into `into`.
void combine(const at::Tensor& gathered, Reducing::Bits bits, const at::Tensor& into);

// A list of tensors as one block of memory. Lists that already are one (views of one buffer, in order) cost no copy.
class Block {
 public:
  Block() = default;
  Block(const std::vector<at::Tensor>& tensors, const char* verb);
  const at::Tensor& memory() const { return memory_; }
  std::vector<std::size_t> counts() const;  // of moved() elements, per tensor
  void fill() const;                        // tensors -> memory
  void spread() const;                      // memory -> tensors

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor memory_;
  bool views_ = false;
};

}  // namespace cohort::python
