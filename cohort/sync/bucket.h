// A Bucket is a run of parameters whose gradients travel together: one flat piece of memory with a place for every tensor on a 64-byte
// boundary; the elements between them mean nothing. With own_parameters() the parameters and the optimizer's state lie flat beside it, so
// that an update is a pass over contiguous memory. What a rank holds of it follows the stage (ownership.h says which elements are its own):
//   stage 0  gradients, parameters and state of all elements. Every param.grad is a view into the communicator's memory, so peers reduce
//            it in place: no copy in, no copy out.
//   stage 1  gradients and parameters of all, as views too; state of its own elements.
//   stage 2  parameters of all; gradients lie in a region of the BufferPool until they are reduced, and only the own piece stays.
//            A gradient is moved in when it arrives (take), while it is hot, and param.grad is undefined afterwards.
//   stage 3  as 2, and of the parameters too only the own piece stays; all are gathered block by block
//            (engine/parameter_gatherer.h).
// With offload=host the model's parameters lie on another device, as copies of those here: gradients are copied in from there when they
// arrive, and fresh parameters copied out.
// Owner: Engine. Threads: one at a time; a lane while it carries the bucket, else the thread that trains. Failure: Kind::usage.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/base/ledger.h"
#include "cohort/collective/communicator.h"
#include "cohort/optim/groups.h"
#include "cohort/optim/optimizer.h"
#include "cohort/sync/buffer_pool.h"
#include "cohort/sync/ownership.h"

namespace cohort::sync {

struct Member {
  std::string name;
  at::Tensor param;                  // a leaf; the same TensorImpl for ever, only its memory moves
  optim::Group group;                // its own hyper-parameters
  std::size_t order = 0;             // place among all parameters of the model, which no bucket plan changes
  std::size_t first = 0, count = 0;  // elements in the flat memory
};

// A place for every member, each on a 64-byte boundary; returns the elements of the whole.
std::size_t assign_offsets(std::vector<Member>& members, at::ScalarType type);

class Bucket {
 public:
  // pool: from stage 2 on, borrowed for the bucket's life.
  Bucket(int index, std::vector<Member> members, collective::Communicator& comm, const Sharding& sharding = {}, BufferPool* pool = nullptr);

  int index() const { return index_; }
  const std::string& name() const { return name_; }  // "bucket 2 (fc1.weight .. conv1.bias)": what errors and traces show
  const std::vector<Member>& members() const { return members_; }
  at::ScalarType type() const { return type_; }
  optim::Real real() const { return type_ == at::kDouble ? optim::Real::f64 : optim::Real::f32; }
  std::size_t bytes() const;  // of all elements, once

  // --- ownership
  const Sharding& sharding() const { return sharding_; }
  const std::vector<std::size_t>& counts() const { return counts_; }  // elements of each rank's piece; empty in stage 0
  Range owned() const { return owned_; }                              // this rank's piece of the flat memory; stage 0: all of it
  Range owned(const Member& m) const;                                 // of one tensor, counted from its own first element

  // --- gradients
  collective::Piece gradients() const;         // all of them, flat
  std::byte* gradient(const Member& m) const;  // the first byte of one; of its owned elements after mark_reduced()
  void attach();  // up to stage 1: every param.grad is its view again: zero_grad() may have dropped it; one from elsewhere is copied in
  void take(std::size_t member);            // from stage 2 on: param.grad moves in, added to what came since the last reduction
  void gather();                            // before the reduction: all are in place, those that did not come are zero
  collective::Piece reduce_output() const;  // from stage 1 on: where the reduced gradients of this rank's piece go ..
  void mark_reduced();                      // .. and they are there
  bool in_flight() const { return grads_.region.data() != nullptr; }  // it has memory for gradients that arrive
  void clear();                                                       // gradients to zero
  void mark_consumed();                                               // the update has read them, and left zeros behind or needs none
  void rebase(const collective::Region& fresh);  // gradients move into other memory of at least bytes(); nothing else changes

  // --- parameters and one run per name of the rule's state
  void own_parameters(const optim::Optimizer& rule, collective::Communicator& comm);
  void copy_to_device() const;    // offload=host, up to stage 2: the model's copies are as fresh as what lies here ..
  void copy_from_device() const;  // .. and the other way
  bool owns_parameters() const { return params_.region.data() != nullptr; }
  collective::Piece parameters() const;                                  // all of them, flat; up to stage 2
  collective::Piece owned_parameters() const;                            // this rank's piece
  collective::Piece all_in(const collective::Region& memory) const;      // all of them, gathered there
  optim::Slice slice(const Member& m, std::vector<void*>& state) const;  // owned elements; state: keeps the pointers the slice borrows
  at::Tensor state(const Member& m, std::size_t which) const;            // stage 0: of the shape of its parameter
  at::Tensor owned_parameter(const Member& m) const;                     // owned elements, flat
  at::Tensor owned_state(const Member& m, std::size_t which) const;      // the same elements

  // --- buddy copies (bucket_buddy.cc): every rank holds a copy of what only the rank before it has, and repeats its updates on it
  bool has_buddy_copy() const { return sharding_.buddy && sharding_.ranks > 1; }
  void send_to_buddy(collective::Communicator& comm) const;  // collective, after the step's last mark_reduced(): the gradients for it
  Range buddy_range(const Member& m) const;                  // of one tensor, counted from its own first element
  optim::Slice buddy_slice(const Member& m, std::vector<void*>& state) const;
  at::Tensor buddy_parameter(const Member& m) const;                   // flat
  at::Tensor buddy_state(const Member& m, std::size_t which) const;    // the same elements
  void copy_to_buddy(collective::Communicator& comm) const;            // collective: all of it, where values came from elsewhere
  void restore_from_buddy(collective::Communicator& comm, Rank lost);  // collective: the rank after `lost` sends it the copy

 private:
  struct Flat {
    collective::Region region;
    std::size_t origin = 0;  // which element of the flat memory its first one is
    Ledger::Entry entry{};
  };
  std::byte* at(const Flat& flat, std::size_t element) const;
  at::Tensor view(const Flat& flat, std::size_t first, at::IntArrayRef sizes) const;
  collective::Piece piece(const Flat& flat, const Range& range) const;
  void acquire_gradients();
  void move_in(Member& m);
  void copy_owned(const Member& m);
  void allocate_buddy_copy(const optim::Optimizer& rule);
  void page_out_state() const;
  Range range_of(int rank) const { return {edges_[static_cast<std::size_t>(rank)], counts_[static_cast<std::size_t>(rank)]}; }
  std::vector<const Flat*> unreplicated() const;                                  // what is on no other rank
  std::size_t first_owned(const Member& m) const { return first_in(owned_, m); }  // in the flat memory
  std::size_t first_in(const Range& piece, const Member& m) const;
  int previous_rank() const { return (sharding_.me + sharding_.ranks - 1) % sharding_.ranks; }  // whose buddy this rank is
  const Flat& buddy_parameters() const { return sharding_.stage >= 3 ? buddy_.back() : params_; }
  bool pooled() const { return sharding_.stage >= 2; }

  const int index_;
  std::vector<Member> members_;
  const at::ScalarType type_;
  const std::size_t count_;  // elements, with the gaps
  const Sharding sharding_;
  BufferPool* const pool_;
  std::vector<std::size_t> edges_, counts_;  // by rank
  Range owned_;
  std::string name_;
  Flat grads_;                // all elements; from stage 2 on the pool's, from the first arrival to the reduction
  Flat sums_;                 // from stage 2 on: reduced gradients of the own piece
  Flat params_;               // all elements; stage 3: the own piece
  std::vector<Flat> states_;  // the own piece
  std::vector<Flat> buddy_;   // unreplicated() of the rank before this one
  Flat buddy_grads_;          // and its reduced gradients
  std::vector<bool> came_;    // from stage 2 on, by member: its gradient lies in grads_
  bool summed_ = false;       // sums_ holds a reduced gradient of this step already
};

}  // namespace cohort::sync
