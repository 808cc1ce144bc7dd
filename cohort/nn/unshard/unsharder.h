// Unsharder loads the parameters of a block for its forward and backward, and unloads them after: Enter | forward | Exit.
//   Unsharder unsharder(loader, units);            // from here on the units' parameters are sharded
//   model.wrap_blocks(unsharder.block_wrapper());
//   x = unsharder.run("layer3", *layer3, x, [&](auto& in) { .. });  // instead of the wrapper, in a forward of your own
// run() loads the block's units for forward and unloads them; Exit.backward loads them again, Enter.backward unloads them for good. A
// parameter keeps its TensorImpl and StorageImpl, only the storage's data pointer changes, so that tensors saved for backward see the data
// again. A unit is resident while anything uses it: tied weights, a block used twice, recomputation. Reading a sharded parameter throws and
// names it, also for gradients of gradients. A block whose inputs need no gradient (token ids) has no Enter.backward: it unloads when
// backward ends. Evaluation (no_grad) loads and unloads too. The order of blocks is recorded in the first pass; later the UnitLoader
// prefetches what comes next. What is written into parameters while they are resident is lost when they are unloaded: updates are the
// UnitLoader's.
// Owner: an Engine. Threads: the one that trains. Failure: the block's and the UnitLoader's own; Kind::usage for a block that changes its
// input in place or shares its name. The next run() outside a backward unloads what a failed backward left behind.
#pragma once
#include <functional>
#include <memory>

#include "cohort/nn/blocks.h"
#include "cohort/nn/unshard/unit.h"

namespace cohort::nn {

// Parameters that the same blocks use belong to one unit, if they are of one type: places in `parameters`, in their order. So a weight
// tied over two blocks is a unit of its own, and neither of them loads more than it reads. Parameters of no block are left out.
std::vector<std::vector<std::size_t>> assign_units(const Model& model, const NamedTensors& parameters);

class Unsharder {
  struct Impl;
  struct Use;

 public:
  using Tensors = std::vector<at::Tensor>;

  // loader: outlives this. ahead: blocks to prefetch.
  Unsharder(UnitLoader& loader, std::vector<Unit> units, std::size_t ahead = 1);
  ~Unsharder();
  Unsharder(const Unsharder&) = delete;
  Unsharder& operator=(const Unsharder&) = delete;

  // inner: what runs the block, recomputation say; empty: its forward. Good while this lives.
  BlockWrapper block_wrapper(BlockWrapper inner = nullptr);
  at::Tensor run(const std::string& block, const torch::nn::Module& module, const at::Tensor& x,
                 const std::function<at::Tensor(const at::Tensor&)>& forward);
  Tensors run(const std::string& block, const std::vector<const torch::nn::Module*>& modules, const Tensors& inputs,
              const std::function<Tensors(const Tensors&)>& forward);

  // While it lives these units are resident, for reading.
  class Hold {
   public:
    ~Hold();
    Hold(Hold&&) noexcept = default;
    Hold& operator=(Hold&&) = delete;

   private:
    friend class Unsharder;
    Hold(std::shared_ptr<Impl> impl, std::vector<std::size_t> units);
    std::shared_ptr<Impl> impl_;
    std::vector<std::size_t> units_;
  };
  [[nodiscard]] Hold hold();  // all of them
  [[nodiscard]] Hold hold(const at::Tensor& parameter);

  void reset() noexcept;              // outside a backward: unloads what a failed one left behind, and what was prefetched
  std::size_t resident() const;       // units that are loaded
  std::size_t most_resident() const;  // at any time so far

 private:
  struct Enter;
  struct Exit;
  std::shared_ptr<Impl> impl_;  // graphs have weak pointers to it: they may live longer
};

}  // namespace cohort::nn
