#include "cohort/train/forecast/forecast.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/data/loader.h"
#include "cohort/engine/plan.h"
#include "cohort/engine/update.h"
#include "cohort/optim/measure.h"
#include "cohort/optim/optimizer.h"
#include "cohort/train/forecast/walk.h"
#include "cohort/train/loop/materials.h"

namespace cohort::forecast {
namespace {

constexpr int kLooks = 2;                          // at every kernel, after the first
constexpr int kRuns = 5;                           // of a sweep or a batch; the best counts
constexpr std::size_t kMostElements = 16'000'000;  // swept for real; more is in proportion
constexpr Seconds kPatience{60};                   // for one batch

double best_of(const std::function<void()>& act) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = Clock::now();
    act();
    best = std::min(best, Seconds(Clock::now() - start).count());
  }
  return best;
}

struct Sweeps {
  double measure = 0, update = 0;
};

// Both passes over memory of the model's size, tensor by tensor as the engine makes them.
Sweeps time_sweeps(const optim::Optimizer& rule, const plan::Walk& walk) {
  std::size_t all = 0, taken = 0;
  for (const auto& p : walk.parameters) all += p.elements;
  std::vector<std::vector<float>> memory(2 + rule.state_names().size(), std::vector<float>(std::min(all, kMostElements), 0.5F));
  std::vector<optim::Slice> slices;
  std::vector<std::vector<void*>> states;
  for (const auto& p : walk.parameters) {
    const std::size_t count = std::min(p.elements, memory[0].size() - taken);
    if (count == 0) break;
    states.emplace_back();
    for (std::size_t i = 2; i < memory.size(); ++i) states.back().push_back(memory[i].data() + taken);
    slices.push_back({.param = memory[0].data() + taken, .grad = memory[1].data() + taken, .state = {}, .count = count});
    taken += count;
  }
  for (std::size_t i = 0; i < slices.size(); ++i) slices[i].state = states[i];
  const double scale = taken == 0 ? 0 : static_cast<double>(all) / static_cast<double>(taken);
  Sweeps sweeps;
  sweeps.update = scale * best_of([&] {
                    for (const auto& s : slices) engine::update_by_all(rule, s, {.step = 1, .lr = 1e-9, .clear_grad = true});
                  });
  sweeps.measure = scale * best_of([&] {
                     optim::Measure found;
                     for (const auto& s : slices) optim::measure(s.grad, s.count, optim::Real::f32, found);
                   });
  return sweeps;
}

double time_data(const TrainConfig& config, const std::shared_ptr<const data::Dataset>& set) {
  if (config.data.threads > 0) return 0;  // made beside the training
  data::Transforms transforms;
  if (set->form().input == data::Input::pixels) transforms = data::Transforms::parse(config.data.transforms, *set);
  data::Loader loader(set, {.share = share_of(config, set->size(), 1, 0), .transforms = transforms, .threads = 0});
  return best_of([&] { loader.next(Deadline::in(kPatience)); }) / config.data.accumulate;
}

Micro micro_of(const TrainConfig& config, const data::Dataset* set, const nn::Input& input) {
  Micro micro{.sample = input.sizes,
              .tokens = input.tokens(),
              .batch = config.data.batch,
              .label_smoothing = config.optim.label_smoothing,
              .precision = config.precision};
  micro.next_tokens = input.tokens();
  if (set == nullptr) return micro;
  micro.sample = set->form().shape;
  micro.next_tokens = set->form().next_tokens;
  return micro;
}

// The first bucket leaves first: gradients in the order they arrive.
std::vector<std::vector<std::size_t>> buckets_of(const plan::Walk& walk, const engine::EngineOptions& options) {
  std::vector<std::size_t> order(walk.parameters.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return walk.parameters[a].arrives < walk.parameters[b].arrives; });
  std::vector<engine::PlanTensor> tensors;
  for (const std::size_t i : order) tensors.push_back({.bytes = walk.parameters[i].bytes});
  auto buckets = engine::plan_buckets(tensors, options.first_bucket, options.bucket);
  for (auto& bucket : buckets)
    for (auto& i : bucket) i = order[i];
  return buckets;
}

// What a step goes over: parameters, gradients, state or so, and what forward keeps.
std::size_t working_set(const plan::Walk& walk) {
  std::size_t bytes = walk.peak;
  for (const auto& p : walk.parameters) bytes += 3 * p.bytes;
  return bytes;
}

// Of recomputing: the settings' own, and for a table those to compare it with.
std::vector<std::string> ways_of(const TrainConfig& config, bool all) {
  if (!all) return {config.recompute};
  std::vector<std::string> ways{"none", "every(1)", "every(2)"};
  if (std::find(ways.begin(), ways.end(), config.recompute) == ways.end()) ways.push_back(config.recompute);
  return ways;
}

}  // namespace

plan::Facts find_facts(const TrainConfig& config, const Asked& asked) {
  at::set_num_threads(asked.threads);
  plan::Facts facts{.model = config.model, .batch = config.data.batch, .accumulate = config.data.accumulate, .memory = asked.memory};
  std::shared_ptr<const data::Dataset> set;
  try {
    set = data::open_dataset(config.data.train);
  } catch (const Failure& failure) {
    facts.notes.push_back(fmt::format("the model's own input is planned with, and making batches takes no time: {}", failure.what()));
  }
  if (config.sync_batch_norm && asked.ranks > 1)
    facts.notes.emplace_back("sync_batch_norm: its small exchanges, two for each norm and step, are not in the plan");
  if (!config.optim.frozen.empty()) facts.notes.emplace_back("optim.frozen: frozen parameters are planned for as if they were trained");
  Kernels kernels(asked.device);
  const Micro micro = micro_of(config, set.get(), input_of(config.model, kernels));
  const plan::Walk met = walk(config.model, micro, "none", kernels);  // every kernel; now they can be timed
  for (int look = 0; look < kLooks; ++look) kernels.look_again(working_set(met));
  for (const std::string& way : ways_of(config, asked.all_ways)) facts.walks.push_back(walk(config.model, micro, way, kernels));
  facts.links = {.ranks = asked.ranks, .cores = asked.cores, .wire = asked.wire, .constants = asked.constants};
  facts.buckets = buckets_of(facts.walks[0], config.engine);
  const int cores = asked.wire ? asked.ranks + 1 : asked.cores;  // with links of its own a rank is taken to have a core to spare
  const Spec strategy = Spec::parse(config.engine.strategy);
  const auto* buddy = strategy.find("buddy");
  facts.buddy = buddy != nullptr && buddy->value != "false";
  facts.lanes = asked.ranks == 1 ? 0 : engine::choose_lanes(config.engine.lanes, cores, asked.ranks, facts.buckets.size()).lanes;
  const auto rule = optim::make(config.optim.rule);
  facts.recipe = {.name = "fp32", .parameter = 4, .gradient = 4, .optimizer = 4.0 * static_cast<double>(rule->state_names().size())};
  if (asked.device) {
    double elements = 0;
    for (const auto& p : facts.walks[0].parameters) elements += static_cast<double>(p.elements);
    facts.update = elements * static_cast<double>(optim::bytes_per_element(*rule, optim::Real::f32, true)) / asked.device->bytes;
    facts.measure = elements * sizeof(float) / asked.device->bytes;
    facts.how = fmt::format("kernels by --flops {:.3g} and --membw {:.3g}", asked.device->flops, asked.device->bytes);
    return facts;
  }
  const Sweeps sweeps = time_sweeps(*rule, facts.walks[0]);
  facts.measure = sweeps.measure;
  facts.update = sweeps.update;
  if (set) facts.data = time_data(config, set);
  facts.how = fmt::format("{} kernels timed here, {} thread{}", facts.walks[0].kernels, asked.threads, asked.threads == 1 ? "" : "s");
  return facts;
}

}  // namespace cohort::forecast
