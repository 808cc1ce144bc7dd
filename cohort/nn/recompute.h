// Activation recomputation: a function's inner results are dropped after forward and computed again when backward needs them.
//   at::Tensor y = cohort::recompute([&](const at::Tensor& x) { return layer->forward(x); }, x);       // many inputs and outputs work too
// (Chen et al. 2016, arXiv:1604.06174.) For the price of a second forward, memory holds the inputs of such functions and the inner results
// of one of them. Random numbers (dropout), autocast and running statistics (`buffers`) are in the second run as in the first, so losses
// and gradients have the same bits as without it. Any input may need no gradient; calls may be nested; without grad mode it only calls the
// function. One node of the graph stands for the function, with edges to its inputs and to every parameter that it has read, so that a
// parameter's gradient arrives once in a backward, whole, as ever.
// The function must do the same in both runs. Owner: the graph owns the function until its backward. Threads: as torch modules.
// Failure: the function's own; Kind::usage when it changes its inputs in place, captures a tensor with a history (pass that as an input),
// does something else when run again, and for gradients of gradients.
#pragma once
#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/nn/blocks.h"

namespace cohort::nn {

using TensorList = std::vector<at::Tensor>;
// How often each was written to in place so far: one number more tells that a function changed its input.
std::vector<std::int64_t> versions(const TensorList& tensors);

using TensorsFunction = std::function<TensorList(const TensorList&)>;

// buffers: what the function updates as it runs, running means say: they change in the first run only.
TensorList recompute(TensorsFunction function, const TensorList& inputs, TensorList buffers = {});
at::Tensor recompute(const Block& block, const at::Tensor& x);  // with the buffers of its modules

// function(inputs...) gives a tensor, a vector of them or a tuple of them; so does this.
template <class Function, std::convertible_to<at::Tensor>... Inputs>
auto recompute(Function function, const Inputs&... inputs) {
  using Result = std::decay_t<std::invoke_result_t<Function&, const Inputs&...>>;
  auto unpack = [function]<std::size_t... i>(const TensorList& in, std::index_sequence<i...>) mutable { return function(in[i]...); };
  auto call = [unpack](const TensorList& in) mutable { return unpack(in, std::index_sequence_for<Inputs...>{}); };
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    return recompute([call](const TensorList& in) mutable { return TensorList{call(in)}; }, {inputs...})[0];
  } else if constexpr (std::is_same_v<Result, TensorList>) {
    return recompute(call, {inputs...});
  } else {
    const auto flat = [](const auto&... each) { return TensorList{each...}; };
    const TensorList out = recompute([call, flat](const TensorList& in) mutable { return std::apply(flat, call(in)); }, {inputs...});
    return [&]<std::size_t... i>(std::index_sequence<i...>) { return Result{out[i]...}; }
    (std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
}

}  // namespace cohort::nn

namespace cohort {
using nn::recompute;
}  // namespace cohort
