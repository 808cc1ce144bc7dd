// Tensors of torch.distributed as Pieces of the communicator.
// Collectives that only move bytes take every dtype: one that can be reduced as itself, any other as bytes.
// Threads: pure functions. Failure: Kind::usage: on another device, sparse, a type that cannot be reduced.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "cohort/collective/types.h"

namespace cohort::python {

// The same memory (with sizes of its own: the user's may change) when its elements are one block, else a copy that is; `collective` is for
// the error text.
at::Tensor dense(const at::Tensor& tensor, const char* collective);
// What was received into `memory` (from dense) reaches the user's tensor.
void copy_back(const at::Tensor& memory, const at::Tensor& tensor);

collective::Piece moved(const at::Tensor& dense);  // elements, or bytes
// How many of moved()'s elements one element of the tensor is.
std::size_t width(at::ScalarType type);

// What a c10d::ReduceOp means to the communicator.
struct ReduceSpec {
  enum class Bits { none, band, bor, bxor };
  collective::Op op = collective::Op::sum;
  double prescale = 1.0;
  Bits bits = Bits::none;  // integers only; the communicator has no such op, so ranks gather and combine
};
ReduceSpec reduce_spec(const c10d::ReduceOp& op, at::ScalarType type, const char* collective);
collective::Piece reduced(const at::Tensor& dense);
// rows of `gathered` (ranks, ...) combined in rank order into `into`.
void combine(const at::Tensor& gathered, ReduceSpec::Bits bits, const at::Tensor& into);

// A list of tensors as one block of memory. Lists that already are one (views of one buffer, in order) cost no copy.
class FlatTensors {
 public:
  FlatTensors() = default;
  FlatTensors(const std::vector<at::Tensor>& tensors, const char* collective);
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
