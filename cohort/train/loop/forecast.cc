#include "cohort/train/loop/forecast.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/data/loader.h"
#include "cohort/engine/bucket_plan.h"
#include "cohort/engine/update.h"
#include "cohort/nn/plugin.h"
#include "cohort/nn/zoo.h"
#include "cohort/optim/measure.h"
#include "cohort/optim/optimizer.h"
#include "cohort/plan/forecast/profile_model.h"
#include "cohort/train/loop/model_and_data.h"

namespace cohort::train {

using plan::forecast::KernelTimings;
using plan::forecast::MicroBatch;

namespace {

constexpr int kTimings = 2;                        // of every kernel, after the first
constexpr int kRuns = 5;                           // of a pass or a batch; the best counts
constexpr std::size_t kMostElements = 16'000'000;  // passed over for real; the time of more is in proportion
constexpr Seconds kBatchPatience{60};              // for one batch

double best_of(const std::function<void()>& act, int runs = kRuns) {
  double best = 1e30;
  for (int run = 0; run < runs; ++run) {
    const auto start = Clock::now();
    act();
    best = std::min(best, Seconds(Clock::now() - start).count());
  }
  return best;
}

struct PassTimes {
  double measure = 0, update = 0;
};

// What the rule measures of whole tensors before it updates.
void measure_rounds(const optim::Optimizer& rule, optim::Slice slice) {
  const auto each = static_cast<std::size_t>(rule.needs().per_tensor);
  const auto known = slice.sums;
  std::vector<optim::ExactSum> found(each);
  for (int round = 0; round < rule.needs().rounds; ++round) {
    slice.sums = known.first(each * static_cast<std::size_t>(round));
    rule.measure(round, slice, {.step = 1, .lr = 1e-9}, found);
  }
}

// A matrix of so many elements, as nearly square as they allow.
Shape matrix_of(std::size_t elements) {
  auto rows = static_cast<std::size_t>(std::sqrt(static_cast<double>(elements)));
  while (rows > 1 && elements % rows != 0) --rows;
  rows = std::max<std::size_t>(rows, 1);
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(elements / rows)};
}

// Of a rule of whole tensors: the update of matrices of these sizes, once; it may be long.
PassTimes time_whole_tensors(const optim::Optimizer& rule, const plan::ModelProfile& profile) {
  std::size_t all = 0, taken = 0;
  PassTimes passes;
  for (const auto& p : profile.parameters) {
    all += p.elements;
    if (p.elements == 0 || (taken > 0 && taken + p.elements > kMostElements)) continue;
    taken += p.elements;
    const optim::TensorInfo tensor{"", matrix_of(p.elements)};
    std::vector<float> parameter(p.elements, 0.5F), gradient = parameter;
    std::vector<std::vector<float>> memory;
    std::vector<void*> states;
    for (const auto& spec : rule.state(tensor)) states.push_back(memory.emplace_back(optim::count_of(spec.shape), 0.5F).data());
    const optim::Slice slice{
        .param = parameter.data(), .grad = gradient.data(), .state = states, .count = p.elements, .shape = tensor.shape};
    passes.update += best_of([&] { engine::update_by_all(rule, slice, {.step = 1, .lr = 1e-9, .clear_grad = true}); }, 1);
    passes.measure += best_of([&] { optim::squared_norm(gradient.data(), p.elements, Dtype::f32); }, 1);
  }
  const double scale = taken == 0 ? 0 : static_cast<double>(all) / static_cast<double>(taken);
  return {passes.measure * scale, passes.update * scale};
}

// Both passes over memory of the model's size, tensor by tensor as the engine makes them.
PassTimes time_passes(const optim::Optimizer& rule, const plan::ModelProfile& profile) {
  if (rule.needs().grain == optim::Grain::tensor) return time_whole_tensors(rule, profile);
  std::size_t all = 0, taken = 0;
  for (const auto& p : profile.parameters) all += p.elements;
  std::vector<std::vector<float>> memory(2 + rule.state_names().size(), std::vector<float>(std::min(all, kMostElements), 0.5F));
  const std::vector<double> sums(rule.needs().sums(), 1.0);
  std::vector<optim::Slice> slices;
  std::vector<std::vector<void*>> states;
  for (const auto& p : profile.parameters) {
    const std::size_t count = std::min(p.elements, memory[0].size() - taken);
    if (count == 0) break;
    states.emplace_back();
    for (std::size_t i = 2; i < memory.size(); ++i) states.back().push_back(memory[i].data() + taken);
    slices.push_back({.param = memory[0].data() + taken, .grad = memory[1].data() + taken, .state = {}, .count = count, .sums = sums});
    taken += count;
  }
  for (std::size_t i = 0; i < slices.size(); ++i) slices[i].state = states[i];
  const double scale = taken == 0 ? 0 : static_cast<double>(all) / static_cast<double>(taken);
  PassTimes passes;
  passes.update = scale * best_of([&] {
                    for (const auto& s : slices) engine::update_by_all(rule, s, {.step = 1, .lr = 1e-9, .clear_grad = true});
                  });
  passes.measure = scale * best_of([&] {
                     optim::Measure found;
                     for (const auto& s : slices) optim::measure(s.grad, s.count, optim::Real::f32, found);
                     for (const auto& s : slices) measure_rounds(rule, s);
                   });
  return passes;
}

double time_data(const TrainConfig& config, const std::shared_ptr<const data::Dataset>& set) {
  if (config.data.threads > 0) return 0;  // made on other threads
  TrainConfig alone = config;
  alone.mesh.clear();
  data::Transforms transforms;
  if (set->form().input != data::Input::tokens) transforms = data::Transforms::parse(config.data.transforms, *set);
  data::Loader loader(set, {.share = share_of(alone, set->size(), 1, 0), .transforms = transforms, .threads = 0});
  return best_of([&] { loader.next(Deadline::in(kBatchPatience)); }) / config.data.accumulate;
}

MicroBatch micro_batch_of(const TrainConfig& config, const data::Dataset* set, const nn::Input& input) {
  MicroBatch micro_batch{.sample = input.sizes,
                         .tokens = input.tokens(),
                         .batch = config.data.batch,
                         .label_smoothing = config.optim.label_smoothing,
                         .precision = config.precision};
  micro_batch.next_tokens = input.tokens();
  if (set == nullptr) return micro_batch;
  micro_batch.sample = set->form().shape;
  micro_batch.next_tokens = set->form().next_tokens;
  micro_batch.targets = set->form().targets;
  micro_batch.loss = config.loss;
  return micro_batch;
}

// The first bucket is reduced first: gradients in the order in which backward makes them.
std::vector<std::vector<std::size_t>> buckets_of(const plan::ModelProfile& profile, const engine::EngineOptions& options) {
  std::vector<std::size_t> order(profile.parameters.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return profile.parameters[a].arrives < profile.parameters[b].arrives; });
  std::vector<engine::PlanTensor> tensors;
  for (const std::size_t i : order) tensors.push_back({.bytes = profile.parameters[i].bytes});
  auto buckets = engine::plan_buckets(tensors, options.first_bucket, options.bucket);
  for (auto& bucket : buckets)
    for (auto& i : bucket) i = order[i];
  return buckets;
}

// What a step touches: parameters, gradients, state or so, and the activations.
std::size_t working_set(const plan::ModelProfile& profile) {
  std::size_t bytes = profile.peak;
  for (const auto& p : profile.parameters) bytes += 3 * p.bytes;
  return bytes;
}

// Ways to recompute: that of the settings, and for a table those to compare it with.
std::vector<std::string> ways_of(const TrainConfig& config, bool all) {
  if (!all) return {config.recompute};
  std::vector<std::string> ways{"none", "every(1)", "every(2)"};
  if (std::find(ways.begin(), ways.end(), config.recompute) == ways.end()) ways.push_back(config.recompute);
  return ways;
}

// Finds every kernel, so that they can be timed then. Kind::usage with both shapes for a model that does not take what the set gives.
plan::ModelProfile first_profile(const std::string& model, const MicroBatch& micro_batch, const data::Dataset* set,
                                 KernelTimings& kernels) {
  try {
    return plan::forecast::profile_model(model, micro_batch, "none", kernels);
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    if (set == nullptr) throw;
    refuse_misfit(plan::forecast::input_of(model, kernels), set->form(), model, error.what());
  }
}

// Of the passes of the optimizer and of making a batch: timed here, or computed for the device of the options.
void add_times(plan::PlanInput& input, const TrainConfig& config, const ForecastOptions& options, const optim::Optimizer& rule,
               const std::shared_ptr<const data::Dataset>& set) {
  const plan::ModelProfile& profile = input.profiles[0];
  if (options.device) {
    double elements = 0;
    for (const auto& p : profile.parameters) elements += static_cast<double>(p.elements);
    input.update = elements * static_cast<double>(optim::bytes_per_element(rule, optim::Real::f32, true)) / options.device->bytes;
    input.measure = elements * sizeof(float) / options.device->bytes;
    input.how = fmt::format("kernels by --flops {:.3g} and --membw {:.3g}", options.device->flops, options.device->bytes);
    return;
  }
  const PassTimes passes = time_passes(rule, profile);
  input.measure = passes.measure;
  input.update = passes.update;
  if (set) input.data = time_data(config, set);
  input.how = fmt::format("{} kernels timed here, {} thread{}", profile.kernels, options.threads, options.threads == 1 ? "" : "s");
}

}  // namespace

plan::PlanInput gather_plan_input(const TrainConfig& config, const ForecastOptions& options) {
  if (splits_model(config))
    throw_failure(Kind::usage, "mesh={}: predictions know no layers that ranks share out; plan without it, or with dp alone", config.mesh);
  at::set_num_threads(options.threads);
  nn::load_plugins(config.plugins);
  plan::PlanInput plan_input{
      .model = config.model, .batch = config.data.batch, .accumulate = config.data.accumulate, .memory = options.memory};
  std::shared_ptr<const data::Dataset> set;
  try {
    set_limits(config.data);
    set = data::open_dataset(config.data.train);
  } catch (const Failure& failure) {
    plan_input.notes.push_back(fmt::format("the model's own input is planned with, and making batches takes no time: {}", failure.what()));
  }
  if (set) plan_input.model = nn::fit_spec(config.model, set->form()).spec;
  if (config.sync_batch_norm && options.ranks > 1)
    plan_input.notes.emplace_back("sync_batch_norm: its small exchanges, two for each norm and step, are not in the plan");
  if (!config.optim.frozen.empty())
    plan_input.notes.emplace_back("optim.frozen: frozen parameters are planned for as if they were trained");
  KernelTimings kernels(options.device);
  const MicroBatch micro_batch = micro_batch_of(config, set.get(), plan::forecast::input_of(plan_input.model, kernels));
  const plan::ModelProfile first = first_profile(plan_input.model, micro_batch, set.get(), kernels);
  for (int timing = 0; timing < kTimings; ++timing) kernels.remeasure_cold(working_set(first));
  for (const std::string& way : ways_of(config, options.all_ways))
    plan_input.profiles.push_back(plan::forecast::profile_model(plan_input.model, micro_batch, way, kernels));
  plan_input.links = {.ranks = options.ranks, .cores = options.cores, .link_speed = options.link_speed, .constants = options.constants};
  plan_input.buckets = buckets_of(plan_input.profiles[0], config.engine);
  const int cores =
      options.link_speed ? options.ranks + 1 : options.cores;  // with links of its own a rank is taken to have a core to spare
  const Spec strategy = Spec::parse(config.sync);
  const auto* buddy = strategy.find("buddy");
  plan_input.buddy = buddy != nullptr && buddy->value != "false";
  plan_input.lanes =
      options.ranks == 1 ? 0 : engine::choose_lanes(config.engine.lanes, cores, options.ranks, plan_input.buckets.size()).lanes;
  const auto rule = optim::make(config.optimizer);
  plan_input.state_sizes = {
      .name = "fp32", .parameter = 4, .gradient = 4, .optimizer = 4 * optim::state_per_element(*rule, matrix_of(kMostElements))};
  add_times(plan_input, config, options, *rule, set);
  return plan_input;
}

}  // namespace cohort::train
