#include "cohort/ddp/sharded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/base/text.h"
#include "cohort/ddp/same_module.h"
#include "cohort/ddp/sharded_state.h"
#include "cohort/job/job.h"
#include "cohort/nn/tensor.h"
#include "cohort/nn/unshard/unsharder.h"

namespace cohort::ddp {
namespace {

bool names(const ShardedGroup& group, const std::string& parameter) {
  return std::ranges::any_of(group.parameters, [&](const std::string& pattern) { return optim::matches(pattern, parameter); });
}

void check_pattern(std::size_t group, const std::string& pattern, const std::vector<std::string>& parameters) {
  if (std::ranges::any_of(parameters, [&](const std::string& name) { return optim::matches(pattern, name); })) return;
  const std::vector<std::string_view> known(parameters.begin(), parameters.end());
  const std::string_view near = nearest(pattern, known);
  throw_failure(Kind::usage, "Sharded: groups[{}]: the pattern \"{}\" matches none of the {} parameters{}; * stands for any text", group,
                printable(pattern), parameters.size(), near.empty() ? "" : fmt::format("; is \"{}\" meant?", near));
}

void check_groups(const torch::nn::Module& module, const ShardedOptions& options) {
  const std::vector<std::string> parameters = module.named_parameters().keys();
  for (std::size_t i = 0; i < options.groups.size(); ++i) {
    const ShardedGroup& group = options.groups[i];
    const double decay = group.weight_decay.value_or(0);
    if (group.parameters.empty())
      throw_failure(Kind::usage, "Sharded: groups[{}] names no parameters; give patterns, as in .parameters = {{\"head.*\"}}", i);
    if (!std::isfinite(decay) || decay < 0)
      throw_failure(Kind::usage, "Sharded: groups[{}]: a weight decay of {} would make weights grow; give 0 or more", i, decay);
    if (!std::isfinite(group.lr_scale) || group.lr_scale <= 0)
      throw_failure(Kind::usage,
                    "Sharded: groups[{}]: lr_scale is {} and must be above 0; requires_grad_(false) is for parameters that shall not learn",
                    i, group.lr_scale);
    for (const std::string& pattern : group.parameters) check_pattern(i, pattern, parameters);
  }
}

optim::Group group_of(const std::string& parameter, const ShardedOptions& options, double weight_decay) {
  for (const ShardedGroup& group : options.groups)
    if (names(group, parameter)) return {.lr_scale = group.lr_scale, .weight_decay = group.weight_decay.value_or(weight_decay)};
  return {.weight_decay = weight_decay};
}

std::string strategy_of(const ShardedOptions& o) {
  if (o.strategy.empty())
    return fmt::format("zero(stage={}, op={}{}{})", o.stage, o.sum ? "sum" : "average", o.more.empty() ? "" : ", ", o.more);
  if (!o.more.empty() || o.sum || o.stage != ShardedOptions{}.stage)
    throw_failure(Kind::usage, "Sharded: .strategy = \"{}\" says all that .stage, .sum and .more would: leave them out", o.strategy);
  if (!sync::make(o.strategy)->placement(Rank{0}, 1).sharded())
    throw_failure(Kind::usage, "Sharded: strategy {} shards nothing; it is one for DataParallel", o.strategy);
  return o.strategy;
}

// Parameters of one block and type are gathered together; those of several blocks, and of none, are not sharded.
std::vector<engine::Parameter> parameters_of(const torch::nn::Module& module, const ShardedOptions& options) {
  std::map<const c10::TensorImpl*, int> block_of;
  for (std::size_t b = 0; b < options.blocks.size(); ++b)
    for (const auto& tensor : options.blocks[b].module->parameters()) {
      const auto [at, fresh] = block_of.emplace(tensor.unsafeGetTensorImpl(), static_cast<int>(b));
      if (!fresh && at->second != static_cast<int>(b)) at->second = -1;
    }
  const double weight_decay = optim::make(options.optimizer)->default_weight_decay();
  const bool in_blocks = sync::make(strategy_of(options))->placement(Rank{0}, 1).gathers_parameters();
  std::vector<engine::Parameter> all;
  for (const auto& item : module.named_parameters()) {
    const auto found = block_of.find(item.value().unsafeGetTensorImpl());
    const optim::Group group = group_of(item.key(), options, weight_decay);
    all.push_back({item.key(), item.value(), group, in_blocks && found != block_of.end() ? found->second : -1});
  }
  return all;
}

engine::EngineOptions options_of(const ShardedOptions& o) {
  engine::EngineOptions options{
      .strategy = strategy_of(o), .codec = o.codec, .first_bucket = o.first_bucket, .bucket = o.bucket, .lanes = o.lanes};
  options.clip_norm = o.clip_norm;
  return options;
}

// In which ranks must agree. Not lanes, of which all open as many as the host with the fewest cores, and not the folder of offloaded files.
std::vector<std::string> lines_of(const ShardedOptions& o) {
  std::vector<std::string> lines{fmt::format("stage: {}", o.stage),
                                 fmt::format("strategy: {}", without_folder(o.strategy)),
                                 fmt::format("codec: {}", o.codec),
                                 fmt::format("optimizer: {}", o.optimizer),
                                 fmt::format("clip_norm: {}", o.clip_norm),
                                 fmt::format("first_bucket: {} bytes", o.first_bucket.value),
                                 fmt::format("bucket: {} bytes", o.bucket.value),
                                 fmt::format("sum: {}", o.sum),
                                 fmt::format("more: {}", without_folder(o.more))};
  for (const ShardedBlock& block : o.blocks) {
    std::int64_t elements = 0;
    for (const auto& p : block.module->parameters()) elements += p.numel();
    lines.push_back(fmt::format("block {}: {} elements", block.name, elements));
  }
  for (const ShardedGroup& group : o.groups)
    lines.push_back(fmt::format("group of {}: weight_decay {}, lr_scale {}", fmt::join(group.parameters, ", "),
                                group.weight_decay ? fmt::format("{}", *group.weight_decay) : "of the optimizer", group.lr_scale));
  return lines;
}

// On the CPU the offloaded copy would lie in the same memory as the original.
void check_offload(const torch::nn::Module& module, const ShardedOptions& options) {
  const Spec strategy = Spec::parse(options_of(options).strategy);
  const auto says_host = [](const auto& p) { return p.key == "offload" && p.value == "host"; };
  const auto on_cpu = [](const at::Tensor& p) { return p.is_cpu(); };
  const auto parameters = module.parameters();
  if (std::ranges::any_of(strategy.params, says_host) && std::ranges::any_of(parameters, on_cpu))
    throw_failure(Kind::usage,
                  "Sharded: offload=host is for a module on a GPU; on the CPU everything lies in the host's memory already, and "
                  "offload=file:FOLDER takes it to a disk");
}

// All ranks start with rank 0's values, before they are sharded.
void broadcast_module(collective::Communicator& comm, torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  check_same(comm, describe(module));
  const auto send = [&](const std::string& name, const at::Tensor& tensor) {
    const at::Tensor block = tensor.detach().contiguous();
    nn::broadcast(comm, block, Rank{0}, {.name = name});
    if (block.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(block);
  };
  for (const auto& item : module.named_parameters()) send(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) send(item.key(), item.value());
}

// What each parameter ends up with, as JSON.
std::string groups_text(const torch::nn::Module& module, const ShardedOptions& options) {
  const double weight_decay = optim::make(options.optimizer)->default_weight_decay();
  std::map<std::pair<double, double>, std::vector<std::string>> groups;
  for (const auto& item : module.named_parameters()) {
    const optim::Group group = group_of(item.key(), options, weight_decay);
    groups[{group.lr_scale, group.weight_decay}].push_back(item.key());
  }
  auto list = nlohmann::json::array();
  for (const auto& [values, parameters] : groups)
    list.push_back({{"lr_scale", values.first}, {"weight_decay", values.second}, {"parameters", parameters}});
  return list.dump();
}

}  // namespace

struct Sharded::Impl {
  Impl(collective::Communicator& c, torch::nn::Module& m, const ShardedOptions& options, int cores, int ranks_here)
      : comm(c),
        module(m),
        groups(groups_text(m, options)),
        blocks(options.blocks),
        core((check_same_options(c, "Sharded", lines_of(options)), check_offload(m, options), check_groups(m, options),
              broadcast_module(c, m), c),
             parameters_of(m, options), options_of(options), optim::make(options.optimizer), cores, ranks_here),
        lr(core.rule()->default_lr()) {
    begin(true);
  }
  ShardedState state() { return {comm, core, module, groups}; }
  void begin(bool sync) { core.begin({.step = steps + 1, .lr = lr}, sync); }

  collective::Communicator& comm;
  torch::nn::Module& module;
  const std::string groups;
  const std::vector<ShardedBlock> blocks;
  engine::Engine core;
  double lr;  // of the steps from now on
  std::int64_t steps = 0;
};

Sharded::Sharded(Job& job, torch::nn::Module& module, const ShardedOptions& options)
    : Sharded(job.comm(), module, options, job.suggested_threads() * job.local_size(), job.local_size()) {}

Sharded::Sharded(collective::Communicator& comm, torch::nn::Module& module, const ShardedOptions& options, int cores, int ranks_here)
    : impl_(std::make_unique<Impl>(comm, module, options, cores, ranks_here)) {}

Sharded::~Sharded() = default;

at::Tensor Sharded::block(const std::string& name, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  if (!impl_->core.shards_parameters()) return forward(x);
  for (const auto& b : impl_->blocks)
    if (b.name == name) return impl_->core.unsharder().run(name, *b.module, x, forward);
  throw_failure(Kind::usage, "block '{}' is none of those that Sharded was given: name it in ShardedOptions::blocks", name);
}

void Sharded::set_lr(double lr) {
  impl_->core.set_rate(lr);
  impl_->lr = lr;
}

engine::Verdict Sharded::step() { return step(impl_->lr); }

engine::Verdict Sharded::step(double lr) {
  for (const auto& bucket : impl_->core.buckets()) bucket->refuse_parameters_elsewhere();
  impl_->core.set_rate(lr);
  engine::Verdict verdict = impl_->core.finish();
  if (verdict.committed) ++impl_->steps;  // one that is called off is none of the optimizer's: GradScaler does not call it either
  impl_->begin(true);
  return verdict;
}

std::string Sharded::save(const std::string& folder, int keep) { return save_state(impl_->state(), folder, impl_->steps, keep); }

std::optional<std::int64_t> Sharded::load(const std::string& folder) {
  const auto updates = load_state(impl_->state(), folder);
  if (!updates) return updates;
  impl_->steps = *updates;
  impl_->begin(true);  // the optimizer's count is the loaded one
  return updates;
}

std::int64_t Sharded::updates() const { return impl_->steps; }

Sharded::Pause::Pause(Sharded* sharded) : sharded_(sharded) { sharded_->impl_->begin(false); }
Sharded::Pause::~Pause() { sharded_->impl_->begin(true); }

engine::Engine& Sharded::engine() { return impl_->core; }

}  // namespace cohort::ddp
