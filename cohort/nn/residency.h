// Residency makes the parameters of a block come and go around its forward and backward: Enter | forward | Exit.
//   Residency residency(host, units);          // from here on the units' parameters are away
//   model.around(residency.around());          // or, in a forward of your own: x = residency.run("layer3", *layer3, x, [&](auto& in) {..})
// run() brings the block's units in for forward and lets them go; Exit.backward brings them back, Enter.backward lets them go for good. A
// parameter keeps its TensorImpl and StorageImpl, only the storage's data pointer changes, so that tensors saved for backward see the data
// again. A unit is in while anybody uses it: tied weights, a block used twice, recomputation. Reading a parameter that is away throws and
// names it, also for gradients of gradients. A block whose inputs need no gradient (token ids) has no Enter.backward: it lets go when
// backward ends. Evaluation (no_grad) brings and lets go too. The order of blocks is learned in the first pass; later the Host is told what
// comes next. What is written into parameters while they are in is lost when they go: updates are the Host's.
// Owner: an Engine. Threads: the one that trains. Failure: the block's and the Host's own; Kind::usage for a block that changes its input
// in place or shares its name. The next run() outside a backward lets go of what a failed backward left behind.
#pragma once
#include <functional>
#include <memory>

#include "cohort/nn/blocks.h"
#include "cohort/nn/unit.h"

namespace cohort::nn {

// Parameters that the same blocks use belong into one unit, if they are of one type: places in `parameters`, in their order. So a weight
// tied over two blocks is a unit of its own, and neither of them brings in more than it reads. Parameters of no block are left out.
std::vector<std::vector<std::size_t>> share_out(const Model& model, const NamedTensors& parameters);

class Residency {
  struct Impl;
  struct Use;

 public:
  using Tensors = std::vector<at::Tensor>;

  // host: outlives this. ahead: blocks to prefetch.
  Residency(Host& host, std::vector<Unit> units, std::size_t ahead = 1);
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // inner: what runs the block meanwhile, recomputation say; empty: its forward. Good while this lives.
  Around around(Around inner = nullptr);
  at::Tensor run(const std::string& block, const torch::nn::Module& module, const at::Tensor& x,
                 const std::function<at::Tensor(const at::Tensor&)>& forward);
  Tensors run(const std::string& block, const std::vector<const torch::nn::Module*>& modules, const Tensors& inputs,
              const std::function<Tensors(const Tensors&)>& forward);

  // While it lives these units are in, for reading.
  class Hold {
   public:
    ~Hold();
    Hold(Hold&&) noexcept = default;
    Hold& operator=(Hold&&) = delete;

   private:
    friend class Residency;
    Hold(std::shared_ptr<Impl> impl, std::vector<std::size_t> units);
    std::shared_ptr<Impl> impl_;
    std::vector<std::size_t> units_;
  };
  [[nodiscard]] Hold hold();  // all of them
  [[nodiscard]] Hold hold(const at::Tensor& parameter);

  void reset() noexcept;              // outside a backward: lets go of what a failed one left behind, and of what was prefetched
  std::size_t resident() const;       // units that are in
  std::size_t most_resident() const;  // at any time so far

 private:
  struct Enter;
  struct Exit;
  std::shared_ptr<Impl> impl_;  // graphs know it weakly: they may live longer
};

}  // namespace cohort::nn
