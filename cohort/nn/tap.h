// Tap sees what the layers of a model do while they train: what goes into each linear layer and convolution, and the gradient of what came
// out, by samples. Second-order rules make their statistics of it (optim/side.h).
//   Tap tap(model.named_parameters());
//   model.wrap_blocks(tap.block_wrapper());
//   loss.backward();
//   for (const Tap::Layer& layer : tap.layers()) .. layer.records ..
// A layer is known by its weight, whatever module or function computes with it: torch's linear and conv2d, or nn::linear. Records come with
// the gradients, one for each pass; passes without a backward leave none, recomputed ones leave one. Every weight of two dimensions or more
// is listed, in the order given, on every rank alike: embeddings, and layers that a rank had no samples for, have no records.
// Owner: an Engine; wrappers hold it by reference. Threads: the one that trains. Failure: Kind::usage from layers(), for a convolution of a
// tapped block with groups or with padding by name.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cohort/nn/blocks.h"

namespace cohort::nn {

class Tap {
 public:
  struct Record {
    at::Tensor inputs;         // rows x in: samples; of a convolution the patches under the filter, for each place of each sample
    at::Tensor gradients;      // rows x out: of the loss, by what came out
    std::int64_t samples = 0;  // rows; of a convolution the samples that they are places of
  };
  struct Layer {
    std::string weight, bias;  // bias: empty, it has none
    std::int64_t in = 0, out = 0;
    std::vector<Record> records;
  };

  explicit Tap(const NamedTensors& parameters);
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  BlockWrapper block_wrapper(BlockWrapper inner = nullptr);  // inner: what runs the block, recomputation say
  const std::vector<Layer>& layers() const;
  void clear();         // forgets the records
  void watch(bool on);  // off: layers that run from here on leave no records, and cost nothing

  // For layers whose product torch does not know as one of its own: y came out of x. Nothing, where no tap watches.
  static void see(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& y);

 private:
  struct Impl;
  class Watching;
  std::shared_ptr<Impl> impl_;  // graphs have weak pointers to it: they may live longer
};

}  // namespace cohort::nn
