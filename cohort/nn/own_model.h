// A model of one's own as blocks (blocks.h), from what a torch program has:
//   struct NetImpl : torch::nn::Module { torch::Tensor forward(torch::Tensor x); .. };  TORCH_MODULE(Net);
//   nn::Model a = nn::model_of(Net(64));                              // a module with forward(Tensor) -> Tensor: one block
//   nn::Model b = nn::model_of(torch::nn::Sequential(..));            // a block for each child
//   nn::Model c = nn::model_of({{"stem", Stem(3)}, {"pool", [](const at::Tensor& x) { return x.mean({2, 3}); }}, {"head", Head(10)}});
// Blocks are what sharded parameters (ZeRO 3), recomputation and forecasts work on: a large model wants several.
// `input` says what a sample looks like; left out, the Trainer takes the training set's.
// Owner: the model shares the modules. Threads: one. Failure: Kind::usage for no block, and for two of one name.
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/nn/blocks.h"

namespace cohort::nn {

template <class T>
concept ModuleHolder = requires(T holder) {
  {holder.ptr()};
  requires std::derived_from<typename T::ContainedType, torch::nn::Module>;
};
// That is called like one tensor in, one tensor out.
template <class T>
concept TensorModule = ModuleHolder<T> && requires(T holder, at::Tensor x) {
  { holder->forward(x) } -> std::convertible_to<at::Tensor>;
};

struct NamedLayer {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;  // none: a function without parameters
  std::function<at::Tensor(const at::Tensor&)> forward;

  template <TensorModule T>
  NamedLayer(std::string layer, T holder)
      : name(std::move(layer)), module(holder.ptr()), forward([holder](const at::Tensor& x) mutable { return holder->forward(x); }) {}
  template <class F>
  requires(!ModuleHolder<F> && std::is_invocable_r_v<at::Tensor, F, const at::Tensor&>) NamedLayer(std::string layer, F function)
      : name(std::move(layer)), forward(std::move(function)) {}
};

// Parameters are called "<layer>.<parameter>".
Model model_of(std::vector<NamedLayer> layers, Input input = {});

Model model_of_children(torch::nn::Sequential sequential, Input input);

// Parameters have the names that the module gave them.
template <TensorModule T>
Model model_of(T holder, Input input = {}) {
  if constexpr (std::same_as<T, torch::nn::Sequential>) return model_of_children(std::move(holder), std::move(input));
  Model model(holder.ptr(), std::move(input));
  model.add({"model", {holder.ptr()}, [holder](const at::Tensor& x) mutable { return holder->forward(x); }});
  return model;
}

}  // namespace cohort::nn
