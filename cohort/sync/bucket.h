// A Bucket is a run of parameters whose gradients travel together: one flat piece of the communicator's memory, every param.grad a view
// into it. On one host peers reduce it in place: no copy in, no copy out. With own_parameters() the parameters and the optimizer's state
// lie flat beside it, so that update and clearing are passes over contiguous memory. Tensors start on 64-byte boundaries; the elements
// between them are zero and stay zero. Owner: Engine. Threads: one at a time; a lane while it carries the bucket, else the thread that
// trains. Failure: Kind::usage.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/optim/groups.h"
#include "cohort/optim/optimizer.h"

namespace cohort::sync {

struct Member {
  std::string name;
  at::Tensor param;                  // a leaf; the same TensorImpl for ever, only its memory moves
  optim::Group group;                // its own hyper-parameters
  std::size_t order = 0;             // place among all parameters of the model, which no bucket plan changes
  std::size_t first = 0, count = 0;  // elements in the flat memory
};

// A place for every member, each on a 64-byte boundary; returns the elements of the whole.
std::size_t lay_out(std::vector<Member>& members, at::ScalarType type);

class Bucket {
 public:
  Bucket(int index, std::vector<Member> members, collective::Communicator& comm);

  int index() const { return index_; }
  const std::string& name() const { return name_; }  // "bucket 2 (fc1.weight .. conv1.bias)": what errors and traces show
  const std::vector<Member>& members() const { return members_; }
  at::ScalarType type() const { return type_; }
  optim::Real real() const { return type_ == at::kDouble ? optim::Real::f64 : optim::Real::f32; }
  std::size_t bytes() const;
  collective::Piece gradients() const;         // all of them, flat
  std::byte* gradient(const Member& m) const;  // the first byte of one

  void attach();  // every param.grad is its view, again: zero_grad() may have dropped it; a gradient that lies elsewhere is copied in
  void gather() { attach(); }
  void clear();                                  // gradients to zero
  void rebase(const collective::Region& fresh);  // gradients move into other memory of at least bytes(); nothing else changes

  // Parameters and one run per name of the rule's state move into flat memory of this process.
  void own_parameters(const optim::Optimizer& rule);
  bool owns_parameters() const { return params_.data() != nullptr; }
  optim::Slice slice(const Member& m, std::vector<void*>& state) const;  // state: keeps the pointers the slice borrows
  at::Tensor state(const Member& m, std::size_t which) const;            // of the shape of its parameter

 private:
  at::Tensor view(const collective::Region& region, const Member& m) const;

  const int index_;
  std::vector<Member> members_;
  const at::ScalarType type_;
  const std::size_t count_;  // elements, with the gaps
  std::string name_;
  collective::Region grads_, params_;
  std::vector<collective::Region> states_;
};

}  // namespace cohort::sync
