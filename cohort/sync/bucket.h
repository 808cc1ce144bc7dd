// A Bucket is a run of parameters whose gradients travel together: one flat piece of memory with a place for every tensor on a 64-byte
// boundary; the elements between them mean nothing. With own_parameters() the parameters and the optimizer's state lie flat beside it, so
// that an update is a pass over contiguous memory. What a rank holds of it follows the stage (ownership.h says which elements are its own):
//   stage 0  gradients, parameters and state of all elements. Every param.grad is a view into the communicator's memory, so peers reduce
//            it in place: no copy in, no copy out.
//   stage 1  gradients and parameters of all, as views too; state of its own elements.
//   stage 2  parameters of all; gradients lie in a region of the Pool while they are on their way, and only the own piece stays. A gradient
//            is moved in when it arrives (take), while it is hot, and param.grad is undefined afterwards.
//   stage 3  as 2, and of the parameters too only the own piece stays; all of them come and go (engine/gathering.h).
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
#include "cohort/sync/ownership.h"
#include "cohort/sync/pool.h"

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
  // pool: from stage 2 on, borrowed for the bucket's life.
  Bucket(int index, std::vector<Member> members, collective::Communicator& comm, const Sharding& sharding = {}, Pool* pool = nullptr);

  int index() const { return index_; }
  const std::string& name() const { return name_; }  // "bucket 2 (fc1.weight .. conv1.bias)": what errors and traces show
  const std::vector<Member>& members() const { return members_; }
  at::ScalarType type() const { return type_; }
  optim::Real real() const { return type_ == at::kDouble ? optim::Real::f64 : optim::Real::f32; }
  std::size_t bytes() const;  // of all elements, once

  // --- whose
  const Sharding& sharding() const { return sharding_; }
  const std::vector<std::size_t>& counts() const { return counts_; }  // elements of each rank's piece; empty in stage 0
  Range owned() const { return owned_; }                              // this rank's piece of the flat memory; stage 0: all of it
  Range owned(const Member& m) const;                                 // of one tensor, counted from its own first element

  // --- gradients
  collective::Piece gradients() const;         // all of them, flat
  std::byte* gradient(const Member& m) const;  // the first byte of one; of its owned elements after agreed()
  void
  attach();  // up to stage 1: every param.grad is its view, again: zero_grad() may have dropped it; one that lies elsewhere is copied in
  void take(std::size_t member);      // from stage 2 on: param.grad moves in, added to what came since the last agreement
  void gather();                      // before they are agreed upon: all are in place, those that did not come are zero
  collective::Piece landing() const;  // from stage 1 on: where the agreed gradients of this rank's piece go ..
  void agreed();                      // .. and they are there
  bool in_flight() const { return grads_.region.data() != nullptr; }  // it has a place for gradients that arrive
  void clear();                                                       // gradients to zero
  void settled();                                                     // they went into an update, which left zeros behind or needs none
  void rebase(const collective::Region& fresh);  // gradients move into other memory of at least bytes(); nothing else changes

  // --- parameters and one run per name of the rule's state
  void own_parameters(const optim::Optimizer& rule, collective::Communicator& comm);
  void hand_out() const;  // offload=host, up to stage 2: the model's copies are as fresh as what lies here ..
  void take_in() const;   // .. and the other way
  bool owns_parameters() const { return params_.region.data() != nullptr; }
  collective::Piece parameters() const;                                  // all of them, flat; up to stage 2
  collective::Piece owned_parameters() const;                            // this rank's piece
  collective::Piece all_in(const collective::Region& memory) const;      // all of them, gathered there
  optim::Slice slice(const Member& m, std::vector<void*>& state) const;  // owned elements; state: keeps the pointers the slice borrows
  at::Tensor state(const Member& m, std::size_t which) const;            // stage 0: of the shape of its parameter
  at::Tensor own_parameter(const Member& m) const;                       // owned elements, flat
  at::Tensor own_state(const Member& m, std::size_t which) const;        // the same elements

  // --- buddy copies (bucket_buddy.cc): every rank keeps what only the rank before it has, and repeats its updates there
  bool keeps() const { return sharding_.buddy && sharding_.ranks > 1; }
  void entrust(collective::Communicator& comm) const;  // collective, after the step's last agreed(): the gradients for it
  Range kept(const Member& m) const;                   // of one tensor, counted from its own first element
  optim::Slice kept_slice(const Member& m, std::vector<void*>& state) const;
  at::Tensor kept_parameter(const Member& m) const;                 // flat
  at::Tensor kept_state(const Member& m, std::size_t which) const;  // the same elements
  void copy_to_buddy(collective::Communicator& comm) const;         // collective: all of it, where values came from elsewhere
  void take_back(collective::Communicator& comm, Rank lost);        // collective: the rank after `lost` gives it what it kept

 private:
  struct Flat {
    collective::Region region;
    std::size_t origin = 0;  // which element of the flat memory its first one is
    Ledger::Entry entry{};
  };
  std::byte* at(const Flat& flat, std::size_t element) const;
  at::Tensor view(const Flat& flat, std::size_t first, at::IntArrayRef sizes) const;
  collective::Piece piece(const Flat& flat, const Range& range) const;
  void need_place();
  void move_in(Member& m);
  void copy_owned(const Member& m);
  void keep_for_buddy(const optim::Optimizer& rule);
  void cool_down() const;
  Range range_of(int rank) const { return {edges_[static_cast<std::size_t>(rank)], counts_[static_cast<std::size_t>(rank)]}; }
  std::vector<const Flat*> precious() const;                                      // what no other rank has
  std::size_t first_owned(const Member& m) const { return first_in(owned_, m); }  // in the flat memory
  std::size_t first_in(const Range& piece, const Member& m) const;
  int before() const { return (sharding_.me + sharding_.ranks - 1) % sharding_.ranks; }  // whose buddy this rank is
  const Flat& kept_parameters() const { return sharding_.stage >= 3 ? kept_.back() : params_; }
  bool pooled() const { return sharding_.stage >= 2; }

  const int index_;
  std::vector<Member> members_;
  const at::ScalarType type_;
  const std::size_t count_;  // elements, with the gaps
  const Sharding sharding_;
  Pool* const pool_;
  std::vector<std::size_t> edges_, counts_;  // by rank
  Range owned_;
  std::string name_;
  Flat grads_;                // all elements; from stage 2 on lent by the pool, between the first arrival and the agreement
  Flat sums_;                 // from stage 2 on: agreed gradients of the own piece
  Flat params_;               // all elements; stage 3: the own piece
  std::vector<Flat> states_;  // the own piece
  std::vector<Flat> kept_;    // precious() of the rank before this one
  Flat kept_grads_;           // and its agreed gradients
  std::vector<bool> came_;    // from stage 2 on, by member: its gradient lies in grads_
  bool summed_ = false;       // sums_ holds an agreed gradient of this step already
};

}  // namespace cohort::sync
