// A Bucket is a run of parameters whose gradients travel together: flat memory with a place for every tensor on a 64-byte boundary; the
// elements between them mean nothing. It has four parts:
//   members()    which tensors lie where; layout() is the same for codecs
//   placement()  who keeps which role of its elements (placement.h): what this rank holds
//   slots        the memory for each role, in the communicator's where peers read it in place
//   buddy()      copies of what only the rank before this one has (buddy.h)
// and with a codec the coded reduction that its gradients travel by. An update is a pass over contiguous memory. No torch here: the model's
// tensors are views into this memory, which is engine/bucket_views.h.
// Gradients that are whole only until they are reduced (Extent::while_used) lie in a region of the BufferPool from the first that arrives
// to the reduction, after which only the own piece stays.
// Owner: Engine. Threads: one at a time; a lane while it carries the bucket, else the thread that trains. Failure: Kind::usage.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/layout.h"
#include "cohort/optim/groups.h"
#include "cohort/optim/optimizer.h"
#include "cohort/sync/buddy.h"
#include "cohort/sync/buffer_pool.h"
#include "cohort/sync/coded_reduce.h"
#include "cohort/sync/ownership.h"
#include "cohort/sync/placement.h"
#include "cohort/sync/state_plan.h"

namespace cohort::sync {

// So many ranks hold the same of a tensor, and this is the me-th of them.
struct Holders {
  int count = 1, me = 0;
};

struct Member {
  std::string name;
  Shape shape{};
  optim::Group group{};              // its own hyper-parameters
  std::size_t order = 0;             // place among all parameters of the model, which no bucket plan changes
  bool is_box = false;               // of a larger tensor, other boxes of which are on other ranks
  Holders same_gradient{};           // of this rank's own gradient
  Holders same_part{};               // of what this rank owns of the reduced one, and of the parameter
  std::size_t first = 0, count = 0;  // elements in the flat memory
  Range range() const { return {first, count}; }
};

// A place for every member, each on a 64-byte boundary; returns the elements of the whole.
std::size_t assign_offsets(std::vector<Member>& members, Dtype type);

class Bucket {
 public:
  // pool: for gradients that are whole only until they are reduced, borrowed for the bucket's life.
  Bucket(int index, std::vector<Member> members, Dtype type, collective::Communicator& comm, Placement placement = {},
         BufferPool* pool = nullptr, Device device = Device::cpu, const Cutting& cutting = {});
  virtual ~Bucket() = default;
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  int index() const { return index_; }
  const std::string& name() const { return name_; }  // "bucket 2 (fc1.weight .. conv1.bias)": what errors and traces show
  const std::vector<Member>& members() const { return members_; }
  Layout layout() const;
  Dtype type() const { return type_; }
  Device device() const { return device_; }     // of its memory, and of every Piece of it
  std::size_t count() const { return count_; }  // elements, with the gaps
  std::size_t bytes() const { return count_ * size_of(type_); }

  // --- ownership
  const Placement& placement() const { return placement_; }
  const std::vector<std::size_t>& edges() const { return edges_; }    // rank r owns [edges[r], edges[r + 1]); empty where all own all
  const std::vector<std::size_t>& counts() const { return counts_; }  // elements of each rank's piece; likewise
  Range owned() const { return owned_; }                              // this rank's piece of the flat memory
  Range owned(const Member& m) const { return part_of(owned_, m); }   // of one tensor, counted from its own first element
  Range range_of(int rank) const { return {edges_[static_cast<std::size_t>(rank)], counts_[static_cast<std::size_t>(rank)]}; }

  // --- gradients
  collective::Piece gradients() const { return grads_.piece({0, count_}, type_); }  // all of them, flat
  std::byte* gradient(const Member& m) const;  // the first byte of one; of its owned elements after mark_reduced()
  collective::Piece reduce_output() const;     // where this rank's piece of the reduced gradients goes ..
  void mark_reduced();                         // .. and it is there
  collective::Piece agreed() const { return agreed_slot().piece(owned_, type_); }  // after mark_reduced()
  bool in_flight() const { return grads_.here(); }                                 // it has memory for gradients that arrive
  void clear();                                                                    // gradients to zero
  void mark_consumed();                                  // the update has read them, and left zeros behind or needs none
  virtual void rebase(const collective::Region& fresh);  // gradients move into other memory of at least bytes(); nothing else changes
  // Gradients travel by way of a codec from now on.
  void reduce_by(std::shared_ptr<const codec::Codec> codec, collective::Communicator& comm);
  CodedReduce* coded() const { return coded_.get(); }  // none: they travel as they are

  // --- parameters and the state of the rule, and what a strategy keeps beside them
  void allocate_parameters(collective::Communicator& comm);  // without values
  void allocate_state(const optim::Optimizer& rule);         // with the rule's initial values, and the buddy's copies
  bool owns_parameters() const { return params_.here(); }
  std::size_t states() const { return states_.size(); }
  collective::Piece parameters() const { return params_.piece({0, count_}, type_); }   // all of them, flat; where they are here
  collective::Piece owned_parameters() const { return params_.piece(owned_, type_); }  // this rank's piece
  collective::Piece owned_state(std::size_t which) const { return states_[which].piece(owned_, type_); }
  collective::Piece all_in(const collective::Region& memory) const { return {memory.data(), count_, type_, device_}; }
  optim::Slice slice(const Member& m, std::vector<void*>& state) const;  // owned elements; state: keeps the pointers the slice borrows
  collective::Piece owned_parameter(const Member& m) const { return params_.piece(owned_of(m), type_); }
  const std::vector<optim::StateSpec>& specs(const Member& m) const { return specs_[place_of(m)]; }  // of the rule's state of it
  collective::Piece owned_state(const Member& m, std::size_t which) const;  // its owned elements; of a state of another shape all of them
  void page_out_state() const;  // Home::file: pages leave this process until they are touched again
  // Memory of all elements for a strategy, by name; in the communicator's where `comm` is given, so that peers read it in place.
  // per_tensor: of one element for each tensor.
  collective::Piece open_slot(const std::string& name, collective::Communicator* comm = nullptr, bool per_tensor = false);
  collective::Piece slot(const std::string& name) const;
  collective::Piece slot(const std::string& name, const Member& m) const;  // of one tensor
  bool has_slot(const std::string& name) const { return extra_.contains(name); }

  Buddy& buddy() { return buddy_; }
  const Buddy& buddy() const { return buddy_; }

 protected:
  collective::Region gradients_of(const Member& m) const { return grads_.part(m.range(), type_); }
  collective::Region parameters_of(const Member& m) const { return params_.part(m.range(), type_); }
  collective::Piece gradient_piece(const Member& m) const { return grads_.piece(m.range(), type_); }
  void acquire_gradients();
  bool came(std::size_t member) const { return came_[member]; }
  void mark_came(std::size_t member) { came_[member] = true; }

 private:
  friend class Buddy;
  Range part_of(const Range& piece, const Member& m) const;   // of one tensor, counted from its own first element
  Range range_in(const Range& piece, const Member& m) const;  // the same elements in the flat memory
  Range owned_of(const Member& m) const { return range_in(owned_, m); }
  std::size_t place_of(const Member& m) const { return static_cast<std::size_t>(&m - members_.data()); }
  bool keeps_whole() const { return !plan_.bytes.empty(); }  // state of tensors that are not cut
  std::vector<int> owners() const;                           // by member
  Piece state_in(const Slot& run, const Member& m, std::size_t which) const;
  Slot allocate_run(std::size_t bytes, std::size_t which) const;
  const Slot& agreed_slot() const { return pooled() ? sums_ : grads_; }
  std::vector<const Slot*> unreplicated() const;  // what is on no other rank
  bool pooled() const { return placement_.gathers_gradients(); }

  const int index_;
  std::vector<Member> members_;
  const Dtype type_;
  const Device device_;
  const std::size_t count_;
  const Placement placement_;
  BufferPool* const pool_;
  std::vector<std::size_t> edges_, counts_;  // by rank
  Range owned_;
  std::string name_;
  Slot grads_;                                        // role grad: all elements
  Slot sums_;                                         // role agreed, where it is no part of grads_: the own piece
  Slot params_;                                       // roles master and live: all elements, or the own piece
  std::vector<std::vector<optim::StateSpec>> specs_;  // by member
  std::vector<Slot> states_;                          // the own piece, like its parameters
  StatePlan plan_;                                    // or, of tensors that are not cut ..
  Slot run_;                                          // .. what this rank owns
  struct Extra {
    Slot slot;
    bool per_tensor = false;
  };
  std::map<std::string, Extra> extra_;  // of the strategy
  Buddy buddy_{*this};
  std::unique_ptr<CodedReduce> coded_;
  std::vector<bool> came_;  // by member: its gradient lies in grads_, where that is of the pool
  bool summed_ = false;     // sums_ holds a reduced gradient of this step already
};

}  // namespace cohort::sync
