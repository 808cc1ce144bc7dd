// A model is an ordered list of named blocks: tensor in, tensor out, one after the other.
//   Model model = make_model("resnet18(classes=10, stem=cifar)", seed);           // zoo.h
//   model.wrap_blocks([](const Block& b, const at::Tensor& x) { return b.forward(x); });  // every block runs through it
//   at::Tensor logits = model.forward(images);
// The wrapper serves sharded parameters, recomputation, pipeline stages and timing per block. This header knows tensors only; files that
// build modules include <torch/torch.h> themselves.
// Owner: values that share one root module (a copy is the same model). Threads: one at a time, as torch modules.
// Failure: Kind::usage for two blocks of one name and for blocks whose parameters the root does not own. To add a model: zoo.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace cohort::nn {

struct Block {
  std::string name;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;  // whose parameters it reads; a module in two blocks is tied
  std::function<at::Tensor(const at::Tensor&)> forward;
};

using BlockWrapper = std::function<at::Tensor(const Block&, const at::Tensor&)>;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// What one sample looks like: an image of floats [c,h,w], or token ids [t] below `vocabulary`.
struct Input {
  std::vector<std::int64_t> sizes;
  std::int64_t vocabulary = 0;  // 0: floats
  bool tokens() const { return vocabulary > 0; }
};

class Model {
 public:
  // root: owns all parameters and buffers, under the names that checkpoints show.
  Model(std::shared_ptr<torch::nn::Module> root, Input input);
  void add(Block block);

  at::Tensor forward(at::Tensor x) const;
  void wrap_blocks(BlockWrapper wrapper);  // empty: blocks run unwrapped
  const std::vector<Block>& blocks() const { return blocks_; }
  const Block& block(const std::string& name) const;
  const Input& input() const { return input_; }
  void set_input(Input input) { input_ = std::move(input); }
  torch::nn::Module& root() const { return *root_; }

  NamedTensors named_parameters() const;                    // each tensor once, in the order of registration
  NamedTensors named_buffers() const;                       // likewise
  NamedTensors named_parameters(const Block& block) const;  // with the root's names; tied ones appear in each of their blocks
  std::int64_t parameter_count() const;

  void train(bool on = true);
  bool training() const;
  void to(at::ScalarType dtype);  // floating point parameters and buffers; counters stay whole numbers
  void to(at::Device device);
  void zero_grad();

  // n samples that fit, the same for the same seed: floats of unit variance, or token ids.
  at::Tensor example(std::int64_t n, std::uint64_t seed = 0) const;
  // A table of blocks, their output for one sample, and their parameters. Runs the model once, in evaluation, without the wrapper.
  std::string describe() const;

 private:
  std::shared_ptr<torch::nn::Module> root_;  // shared: blocks and their closures hold parts of it
  Input input_;
  std::vector<Block> blocks_;
  BlockWrapper wrapper_;
};

}  // namespace cohort::nn
