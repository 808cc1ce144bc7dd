#include "cohort/nn/blocks.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <unordered_set>

#include "cohort/base/error.h"

namespace cohort::nn {
namespace {

NamedTensors plain(const torch::OrderedDict<std::string, at::Tensor>& dict) {
  NamedTensors list;
  list.reserve(dict.size());
  for (const auto& item : dict) list.emplace_back(item.key(), item.value());
  return list;
}

// Of a tensor with several names the first counts.
NamedTensors once(NamedTensors all) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::erase_if(all, [&](const auto& item) { return !seen.insert(item.second.unsafeGetTensorImpl()).second; });
  return all;
}

// 1234567 -> "1,234,567"
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

}  // namespace

Model::Model(std::shared_ptr<torch::nn::Module> root, Input input) : root_(std::move(root)), input_(std::move(input)) {}

void Model::add(Block block) {
  if (!block.forward) throw_failure(Kind::usage, "block '{}' has no forward function", block.name);
  const bool known = std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& other) { return other.name == block.name; });
  if (known) throw_failure(Kind::usage, "the model has a block '{}' already; give the second one a name of its own", block.name);
  blocks_.push_back(std::move(block));
}

at::Tensor Model::forward(at::Tensor x) const {
  for (const Block& block : blocks_) x = wrapper_ ? wrapper_(block, x) : block.forward(x);
  return x;
}

void Model::wrap_blocks(BlockWrapper wrapper) { wrapper_ = std::move(wrapper); }

const Block& Model::block(const std::string& name) const {
  std::vector<std::string_view> known;
  for (const Block& block : blocks_) {
    if (block.name == name) return block;
    known.emplace_back(block.name);
  }
  throw_failure(Kind::usage, "the model has no block '{}'; its blocks are {}", name, fmt::join(known, ", "));
}

NamedTensors Model::named_parameters() const { return once(plain(root_->named_parameters())); }
NamedTensors Model::named_buffers() const { return once(plain(root_->named_buffers())); }

NamedTensors Model::named_parameters(const Block& block) const {
  std::unordered_set<const c10::TensorImpl*> mine;
  for (const auto& module : block.modules) {
    for (const at::Tensor& parameter : module->parameters()) mine.insert(parameter.unsafeGetTensorImpl());
  }
  NamedTensors list = named_parameters();
  std::erase_if(list, [&](const auto& item) { return !mine.contains(item.second.unsafeGetTensorImpl()); });
  if (list.size() != mine.size()) {
    throw_failure(Kind::usage, "block '{}' uses {} parameters, the model's root owns {} of them; register its modules with the root",
                  block.name, mine.size(), list.size());
  }
  return list;
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : named_parameters()) count += parameter.numel();
  return count;
}

void Model::train(bool on) { root_->train(on); }
bool Model::training() const { return root_->is_training(); }
void Model::zero_grad() { root_->zero_grad(); }
void Model::to(at::Device device) { root_->to(device); }

void Model::to(at::ScalarType dtype) {
  const auto convert = [&](const NamedTensors& list) {
    for (const auto& [name, tensor] : list) {
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
    }
  };
  convert(named_parameters());
  convert(named_buffers());
}

at::Tensor Model::example(std::int64_t n, std::uint64_t seed) const {
  at::Generator rng = at::detail::createCPUGenerator(seed);
  std::vector<std::int64_t> sizes{n};
  sizes.insert(sizes.end(), input_.sizes.begin(), input_.sizes.end());
  if (input_.tokens()) return at::randint(input_.vocabulary, sizes, rng, at::kLong);
  return at::randn(sizes, rng, at::kFloat);
}

std::string Model::describe() const {
  const at::NoGradGuard no_grad;
  const bool was_training = training();
  root_->eval();
  const NamedTensors parameters = named_parameters();
  at::Tensor x = example(1);
  if (!parameters.empty() && !input_.tokens()) x = x.to(parameters.front().second.options());
  if (!parameters.empty() && input_.tokens()) x = x.to(parameters.front().second.device());
  std::unordered_set<const c10::TensorImpl*> seen;
  std::string table = fmt::format("{:<16} {:<20} {:>14}\n", "block", "output", "parameters");
  table += fmt::format("{:<16} {:<20} {:>14}\n", "(input)", fmt::format("{}", fmt::join(x.sizes(), " x ")), "");
  for (const Block& block : blocks_) {
    x = block.forward(x);
    std::int64_t count = 0;
    bool tied = false;
    for (const auto& [name, parameter] : named_parameters(block)) {
      const bool first = seen.insert(parameter.unsafeGetTensorImpl()).second;
      count += first ? parameter.numel() : 0;
      tied = tied || !first;
    }
    table += fmt::format("{:<16} {:<20} {:>14}{}\n", block.name, fmt::format("{}", fmt::join(x.sizes(), " x ")), grouped(count),
                         tied ? "  + tied" : "");
  }
  root_->train(was_training);
  return table + fmt::format("{:<16} {:<20} {:>14}\n", "total", "", grouped(parameter_count()));
}

}  // namespace cohort::nn
