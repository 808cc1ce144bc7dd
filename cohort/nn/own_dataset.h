// A data set of one's own, from what a torch program has: a type with size() and get(i), as in torch::data::datasets::Dataset, where get
// gives an input tensor and a label.
//   struct Waves { std::size_t size() const; std::pair<at::Tensor, std::int64_t> get(std::size_t i); };
//   auto train = nn::dataset_of(Waves{..}, {.name = "waves", .classes = 3});
// What get(i) gives: a pair, a tuple, torch::data::Example, or a struct with `input` and `label`. All samples are like sample 0:
//   input   uint8 [c, h, w]: a picture, which config.data.transforms applies to · floating point, 1 to 4 sizes: values, as they are
//           int64 [t]: tokens, which want `vocabulary`
//   label   a whole number: a class; -100 counts for nothing · int64 [k]: k of them, batches are [n, k] (of tokens: the next ones)
//           floating point, of any sizes: the values of a regression, batches are [n, k]
// Owner: the set is moved or copied in. Threads: get() is called by the training thread; with data.threads > 0 by several at once.
// Failure: of a sample that is not like sample 0, or that get() fails for, Kind::corrupt with its index.
#pragma once
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort::nn {

struct OwnSample {
  at::Tensor input, label;
};

struct OwnDatasetOptions {
  std::string name = "own";          // in messages
  std::int64_t classes = 0;          // labels are 0 .. classes - 1; 0: not checked here
  std::int64_t vocabulary = 0;       // tokens are 0 .. vocabulary - 1
  std::vector<std::string> names{};  // of the classes
};

// The sets that are not templates: samples by a function.
std::shared_ptr<const data::Dataset> dataset_of(std::function<OwnSample(std::int64_t)> get, std::int64_t size, OwnDatasetOptions options);

at::Tensor label_tensor(std::int64_t label);
at::Tensor label_tensor(double label);

namespace own {

template <class T>
at::Tensor label_of(T&& label) {
  using Plain = std::remove_cvref_t<T>;
  if constexpr (std::integral<Plain>)
    return label_tensor(static_cast<std::int64_t>(label));
  else if constexpr (std::floating_point<Plain>)
    return label_tensor(static_cast<double>(label));
  else
    return std::forward<T>(label);
}

template <class Item>
OwnSample sample_of(Item item) {
  if constexpr (requires { item.data, item.target; })
    return {item.data, label_of(item.target)};
  else if constexpr (requires { item.input, item.label; })
    return {item.input, label_of(item.label)};
  else
    return {std::get<0>(item), label_of(std::get<1>(item))};
}

template <class Set>
std::int64_t size_of(const Set& set) {
  const auto size = set.size();
  if constexpr (std::integral<std::remove_cvref_t<decltype(size)>>)
    return static_cast<std::int64_t>(size);
  else
    return static_cast<std::int64_t>(size.value());  // torch's are optional
}

}  // namespace own

template <class Set>
requires requires(Set set, std::size_t i) {
  set.size();
  own::sample_of(set.get(i));
}
std::shared_ptr<const data::Dataset> dataset_of(Set set, OwnDatasetOptions options = {}) {
  auto held = std::make_shared<Set>(std::move(set));
  const std::int64_t size = own::size_of(*held);
  return dataset_of([held](std::int64_t i) { return own::sample_of(held->get(static_cast<std::size_t>(i))); }, size, std::move(options));
}

}  // namespace cohort::nn
