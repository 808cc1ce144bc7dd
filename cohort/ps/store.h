// A Store is the memory of a table's shard and what an update does to it:
//   g = mean sum_w scale_w g_w          x <- rule(x, g)
// with any rule of optim that updates element by element, its state beside x. What workers push is staged, each in memory of its own, and
// counts when it is applied. The sum is made in the bracket of collectives over the order of the workers, so that applying all workers'
// updates together gives the bits of an all-reduce and a local update.
// Owner: Table. Threads: one. Failure: Kind::usage where it is made, with the reason.
// To add a kind of table: derive from it, and a verb of message.h that makes it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/optim/optimizer.h"

namespace cohort::ps {

// What a worker says of what it has pushed in a clock.
struct Update {
  bool go = true;  // false: it does not count, say because a gradient is not finite
  double lr = 0;
  double scale = 1;             // of the gradient
  std::vector<bool> missing{};  // by part: it has no gradient of it; empty: of all
};

struct Contribution {
  int worker = 0;
  const Update* update = nullptr;
};

class Store {
 public:
  virtual ~Store() = default;
  // The contributions of these workers become one update, the number-th. mean: what their sum is multiplied with. Their staged values are
  // gone afterwards.
  virtual void apply(std::span<const Contribution> together, double mean, std::int64_t number) = 0;
  virtual void drop(int worker) = 0;  // what it has staged
  virtual void add_worker() = 0;
};

// A run of elements of one tensor that the shard has.
struct Part {
  std::size_t first = 0, count = 0;  // in the shard
  double lr_scale = 1, weight_decay = 0;
  bool operator==(const Part&) const = default;
};

// Of a shard of a table of elements: gradients of a bucket, the weights of a model.
struct DenseSpec {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::size_t count = 0;
  std::vector<Part> parts;  // those that rules update; elements between them mean nothing
  std::string rule;
};

class DenseStore final : public Store {
 public:
  DenseStore(DenseSpec spec, int workers);
  void apply(std::span<const Contribution> together, double mean, std::int64_t number) override;
  void drop(int worker) override { staged_[static_cast<std::size_t>(worker)].here = false; }
  void add_worker() override { staged_.emplace_back(); }

  // Where what a worker pushes lands; then it is there.
  Piece staging(int worker);
  void mark_staged(int worker) { staged_[static_cast<std::size_t>(worker)].here = true; }
  bool staged(int worker) const { return staged_[static_cast<std::size_t>(worker)].here; }

  const DenseSpec& spec() const { return spec_; }
  const Piece& values() const { return values_; }
  std::size_t states() const { return states_.size(); }
  const Piece& state(std::size_t which) const { return states_[which]; }

 private:
  struct Memory {
    std::unique_ptr<std::byte[]> bytes;
    bool here = false;
  };
  Piece piece_of(const Memory& memory) const { return {memory.bytes.get(), spec_.count, spec_.dtype, Device::cpu}; }
  Memory allocate() const;
  double sum(std::span<const Contribution> together, double mean, const Piece& into);
  void update(const Piece& gradient, const optim::StepInfo& info, std::span<const Contribution> together);

  const DenseSpec spec_;
  const std::unique_ptr<optim::Optimizer> rule_;
  std::vector<Memory> staged_;  // by worker; memory from its first push on
  Memory memory_;
  std::vector<Memory> state_memory_;
  Piece values_;
  std::vector<Piece> states_;
};

// Why a rule cannot update the shards of a table, or nothing.
std::string refusal_of(const optim::Optimizer& rule);

}  // namespace cohort::ps
