#include "cohort/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/cuda/runtime.h"
#include "cohort/optim/exact_sum.h"
#include "cohort/optim/gpu_rule_rows.inc"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule_rows.inc"

namespace cohort::optim {
namespace {

std::size_t states_of(const Optimizer& rule, const Slice& slice, Grain grain) {
  if (grain == Grain::block) return rule.state_names().size();
  if (!is_whole(slice))
    throw_failure(Kind::usage, "optim: {} updates whole tensors, and a slice has {} elements of {} from {} on; see needs()", rule.spec(),
                  slice.count, slice.name, slice.first);
  return rule.state({std::string(slice.name), {slice.shape.begin(), slice.shape.end()}, slice.dtype}).size();
}

void check(const Optimizer& rule, const Slice& slice, const StepInfo& info, std::size_t sums) {
  const std::size_t states = states_of(rule, slice, rule.needs().grain);
  if (slice.state.size() != states)
    throw_failure(Kind::usage, "optim: {} has {} states per element, the slice {}; see state()", rule.spec(), states, slice.state.size());
  if (slice.sums.size() != sums)
    throw_failure(Kind::usage, "optim: {} needs {} sums of the whole tensor here, the slice has {}; see needs()", rule.spec(), sums,
                  slice.sums.size());
  if (slice.dtype != Dtype::f32 && slice.dtype != Dtype::f64)
    throw_failure(Kind::usage, "optim: a slice of {}; updates are made in f32 or f64, 16-bit parameters have an f32 master",
                  name_of(slice.dtype));
  if (info.step < 1) throw_failure(Kind::usage, "optim: step {}; updates are counted from 1", info.step);
  if (!std::isfinite(info.lr) || !std::isfinite(info.grad_scale) || !std::isfinite(slice.lr_scale) || !std::isfinite(slice.weight_decay))
    throw_failure(Kind::usage, "optim: step {}: lr {}, gradient scale {}, lr scale {}, weight decay {}: all must be finite; drop this step",
                  info.step, info.lr, info.grad_scale, slice.lr_scale, slice.weight_decay);
  bool missing = slice.param == nullptr || slice.grad == nullptr;
  for (const void* state : slice.state) missing = missing || state == nullptr;
  if (missing && slice.count > 0)
    throw_failure(Kind::usage, "optim: a slice of {} {} elements has a null param, grad or state", slice.count, name_of(slice.dtype));
}

}  // namespace

std::string spelled_out(const SpecSchema& schema, const Spec& given) {
  Spec full;
  full.name = given.name;
  for (const SpecParam& p : schema.params()) {
    const Spec::Param* own = given.find(p.name);
    std::string value = own != nullptr ? own->value : p.preset.value_or("");
    if (p.type == SpecParam::Type::real) value = fmt::format("{}", parse_real(value));  // 1e-3 and 0.001 are one number
    full.params.push_back({p.name, value, false});
  }
  return full.to_string();
}

Slice part_of(const Slice& slice, std::size_t first, std::size_t count, std::vector<void*>& state) {
  const auto at = [&](void* run) { return static_cast<void*>(static_cast<std::byte*>(run) + first * size_of(slice.dtype)); };
  Slice part = slice;
  state.resize(slice.state.size());
  std::ranges::transform(slice.state, state.begin(), at);
  part.state = state;
  part.param = at(slice.param);
  part.grad = at(slice.grad);
  part.count = count;
  part.first += first;
  return part;
}

bool is_whole(const Slice& slice) {
  std::size_t count = 1;
  for (const auto size : slice.shape) count *= static_cast<std::size_t>(size);
  return slice.first == 0 && slice.count == count;
}

std::vector<StateSpec> Optimizer::state(const TensorInfo& tensor) const {
  std::vector<StateSpec> all;
  for (auto& name : state_names()) all.push_back({std::move(name), tensor.shape, tensor.dtype, initial_state(all.size())});
  return all;
}

void Optimizer::update(const Slice& slice, const StepInfo& info) const {
  check(*this, slice, info, needs().sums());
  if (slice.count > 0) on(slice).apply(slice, info);
}

const Optimizer& Optimizer::on(const Slice& slice) const {
  if (slice.device.kind == DeviceKind::cpu) return *this;
  if (gpu_ != nullptr) return *gpu_;
  if (!cuda::built()) cuda::throw_unavailable(fmt::format("optim: a slice of {} on a GPU", slice.name));
  throw_failure(
      Kind::usage,
      "optim: {} computes with whole tensors on the processor, and {} lies on a GPU: take a rule of single elements, or offload=host",
      spec_, slice.name);
}

void Optimizer::measure(int round, const Slice& slice, const StepInfo& info, std::span<ExactSum> sums) const {
  const auto each = static_cast<std::size_t>(needs().per_tensor);
  if (round < 0 || round >= needs().rounds || sums.size() != each)
    throw_failure(Kind::usage, "optim: {} measures {} sums of a tensor in each of {} rounds, not {} in round {}", spec_, each,
                  needs().rounds, sums.size(), round);
  check(*this, slice, info, each * static_cast<std::size_t>(round));
  if (slice.count > 0) on(slice).add_sums(round, slice, info, sums);
}

std::span<const Rule* const> rules() { return kRuleRows; }
const Rule& rule_named(std::string_view name) { return find_row(rules(), name, "optimizer"); }

std::unique_ptr<Optimizer> make(std::string_view text) {
  const Spec spec = Spec::parse(text);
  const Rule& rule = rule_named(spec.name);
  auto optimizer = rule.make(rule.schema().read(spec));
  optimizer->spec_ = spelled_out(rule.schema(), spec);
  for (const Rule* gpu : kGpuRuleRows)
    if (gpu->name == rule.name) optimizer->gpu_ = gpu->make(gpu->schema().read(spec));
  return optimizer;
}

double state_per_element(const Optimizer& rule, const cohort::Shape& shape) {
  std::size_t count = 0;
  for (const StateSpec& s : rule.state({"", shape})) count += count_of(s.shape);
  return static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(1, count_of(shape)));
}

std::size_t bytes_per_element(const Optimizer& rule, Dtype dtype, bool clear_grad) {
  constexpr std::int64_t kSide = 1024;  // of a matrix; for state of other shapes a number to plan with
  const double runs = 1 + state_per_element(rule, {kSide, kSide});
  return static_cast<std::size_t>(static_cast<double>(size_of(dtype)) * (2 * runs + (clear_grad ? 2 : 1)));
}

SpecParam lr_param(std::string_view preset) { return number_param("lr", preset, "learning rate that schedules start from"); }
SpecParam weight_decay_param(std::string_view preset, std::string_view doc) { return number_param("weight_decay", preset, doc); }
SpecParam share_param(std::string_view name, std::string_view preset, std::string_view doc) {
  constexpr double kBelowOne = 0.99999999999;
  SpecParam param = number_param(name, preset, doc);
  param.high = kBelowOne;
  return param;
}
SpecParam number_param(std::string_view name, std::string_view preset, std::string_view doc) {
  return {.name = std::string(name), .type = SpecParam::Type::real, .doc = std::string(doc), .preset = std::string(preset), .low = 0};
}
SpecParam flag_param(std::string_view name, std::string_view doc) {
  return {.name = std::string(name), .type = SpecParam::Type::boolean, .doc = std::string(doc), .preset = "false"};
}

}  // namespace cohort::optim
