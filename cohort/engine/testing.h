// For tests: a small model on every rank, ranks as threads, trained by an Engine on parts of one global batch.
//   TrainCase train_case{.model = "mlp(in=6, hidden=8, out=3)", .rows = {4, 4}};
//   std::vector<TrainResult> ranks = train_ranks(train_case);  // ranks[1].params[0].second: first parameter of rank 1 after the last step
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/engine/engine.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/zoo.h"

namespace cohort::engine {

inline constexpr std::uint64_t kTestSeed = 7;
inline constexpr const char* kTinyMlp = "mlp(in=6, hidden=8x5, out=3)";

struct CallbackContext {  // what callbacks may touch
  collective::Communicator& comm;
  Engine& engine;
  nn::Model& model;
  int step;  // from 1
};
using StepCallback = std::function<void(const CallbackContext&)>;

struct TrainCase {
  std::string model = kTinyMlp;
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;
  EngineOptions options{.strategy = "all_reduce(op=sum)", .lanes = 0};
  std::string rule = "sgd(lr=0.1)";  // empty: none, and gradients are left in place
  int steps = 1;
  std::vector<std::int64_t> rows{4, 4};  // of each rank; the loss is divided by their sum
  int micro = 1;                         // backwards per step, each over its part of the rows
  double weight_decay = 0;
  double grad_scale = 1;
  StepCallback after_begin{}, before_finish{}, after_finish{};
  std::function<void(nn::Model&)> shape{};  // before the engine exists
  std::function<void(Engine&)> opened{};    // before the first step
  std::function<void(Engine&)> survived{};  // after another rank was lost; none: that failure is rethrown
};

using Named = std::vector<std::pair<std::string, at::Tensor>>;
struct TrainResult {
  Named params, grads, state;
  std::vector<Verdict> verdicts;
  std::size_t buckets = 0;
  bool sharded = false;
};

inline Named copies(const nn::NamedTensors& all, bool grads = false) {
  Named out;
  for (const auto& [name, t] : all) {
    if (grads && !t.grad().defined()) continue;
    out.emplace_back(name, (grads ? t.grad() : t).detach().clone());
  }
  return out;
}

inline std::vector<Parameter> parameters_of(const nn::Model& model, double weight_decay = 0) {
  std::vector<Parameter> all;
  for (const auto& [name, t] : model.named_parameters()) all.push_back({name, t, {.weight_decay = weight_decay}});
  return all;
}

// The loss of these rows of the step's global batch, divided by all of its labels.
inline at::Tensor loss_of_rows(const nn::Model& model, at::ScalarType type, int step, std::int64_t total, std::int64_t first,
                               std::int64_t count) {
  at::Tensor x = model.example(total, static_cast<std::uint64_t>(step));
  if (x.is_floating_point()) x = x.to(type);
  const at::Device device = model.named_parameters()[0].second.device();
  x = x.to(device);
  const at::Tensor logits = model.forward(x.slice(0, first, first + count));
  std::vector<std::int64_t> sizes(logits.sizes().begin(), logits.sizes().end() - 1);
  sizes[0] = total;
  const at::Tensor labels =
      at::randint(logits.size(-1), sizes, at::detail::createCPUGenerator(kTestSeed + static_cast<std::uint64_t>(step)), at::kLong);
  return nn::loss_of(logits, labels.slice(0, first, first + count).to(device)).value / static_cast<double>(labels.numel());
}

// Returns the sum of this rank's losses.
inline double backward_of(const TrainCase& train_case, Engine& engine, nn::Model& model, collective::Communicator& comm, int step,
                          const optim::StepInfo& info) {
  const auto me = static_cast<std::size_t>(comm.rank().value);
  const std::int64_t total = std::accumulate(train_case.rows.begin(), train_case.rows.end(), std::int64_t{0});
  std::int64_t first = std::accumulate(train_case.rows.begin(), train_case.rows.begin() + static_cast<std::ptrdiff_t>(me), std::int64_t{0});
  const std::int64_t part = train_case.rows[me] / train_case.micro;
  double losses = 0;
  for (int k = 0; k < train_case.micro; ++k, first += part) {
    engine.begin(info, k + 1 == train_case.micro);
    if (train_case.after_begin) train_case.after_begin({comm, engine, model, step});
    if (part == 0 && !engine.shards_parameters()) continue;
    const at::Tensor loss = loss_of_rows(model, train_case.type, step, total, first, part);
    losses += loss.item<double>() * static_cast<double>(total);
    loss.backward();
  }
  return losses;
}

inline TrainResult train_one_rank(const TrainCase& train_case, collective::Communicator& comm) {
  nn::Model model = nn::make_model(train_case.model, kTestSeed);
  model.to(train_case.type);
  if (!train_case.device.is_cpu()) model.root().to(train_case.device);
  if (train_case.shape) train_case.shape(model);
  auto rule = train_case.rule.empty() ? nullptr : optim::make(train_case.rule);
  const double lr = rule ? rule->default_lr() : 0;
  const bool needs_loss = rule && rule->needs().loss;
  const auto total = static_cast<double>(std::accumulate(train_case.rows.begin(), train_case.rows.end(), std::int64_t{0}));
  auto parameters = parameters_of(model, train_case.weight_decay);
  assign_units(model, parameters);
  Engine engine(comm, std::move(parameters), train_case.options, std::move(rule), 2, comm.size());
  model.wrap_blocks(engine.block_wrapper());
  TrainResult result;
  try {
    if (train_case.opened) train_case.opened(engine);
    for (int step = 1; step <= train_case.steps; ++step) {
      const double losses[] = {
          backward_of(train_case, engine, model, comm, step, {.step = step, .lr = lr, .grad_scale = train_case.grad_scale})};
      if (train_case.before_finish) train_case.before_finish({comm, engine, model, step});
      result.verdicts.push_back(needs_loss ? engine.finish(losses, total) : engine.finish());
      if (train_case.after_finish) train_case.after_finish({comm, engine, model, step});
    }
  } catch (const Failure&) {
    if (!train_case.survived) throw;
    return train_case.survived(engine), result;
  }
  engine.make_whole();
  result.params = copies(model.named_parameters());
  result.grads = copies(model.named_parameters(), true);
  if (!engine.shards_state())
    engine.visit([&](const StateItem& item) {
      if (item.group == "optimizer") result.state.emplace_back(item.key(), borrowed(item.values).clone().view(item.shape));
    });
  result.buckets = engine.buckets().size();
  result.sharded = engine.shards_state();
  return result;
}

inline std::vector<TrainResult> train_ranks(const TrainCase& train_case) {
  at::set_num_threads(1);
  std::vector<TrainResult> all(train_case.rows.size());
  collective::run_ranks(static_cast<int>(train_case.rows.size()), [&](collective::Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank().value)] = train_one_rank(train_case, comm);
  });
  return all;
}

inline TrainCase alone(TrainCase train_case) {  // the same global batch on one rank
  train_case.rows = {std::accumulate(train_case.rows.begin(), train_case.rows.end(), std::int64_t{0})};
  return train_case;
}

inline void expect_same_bits(const Named& a, const Named& b, const std::string& what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << what << " " << a[i].first;
}

// Gradients and state only where both have them whole: a sharded engine does not.
inline void expect_same_bits(const std::vector<TrainResult>& a, const std::vector<TrainResult>& b, const std::string& what = "") {
  for (std::size_t r = 0; r < a.size(); ++r) {
    expect_same_bits(a[r].params, b[r].params, what);
    if (!a[r].sharded && !b[r].sharded) expect_same_bits(a[r].grads, b[r].grads, what);
    if (!a[r].sharded && !b[r].sharded) expect_same_bits(a[r].state, b[r].state, what);
    for (std::size_t s = 0; s < a[r].verdicts.size(); ++s) {
      EXPECT_EQ(a[r].verdicts[s].squared_before, b[r].verdicts[s].squared_before) << what;
      EXPECT_EQ(a[r].verdicts[s].squared_after, b[r].verdicts[s].squared_after) << what;
      EXPECT_EQ(a[r].verdicts[s].clip, b[r].verdicts[s].clip) << what;
    }
  }
}

inline double largest(const Named& all) {
  double most = 0;
  for (const auto& [name, t] : all)
    if (t.numel() > 0) most = std::max(most, t.abs().max().item<double>());
  return most;
}

// Differences in units of the largest entry of the whole model.
inline void expect_near(const Named& a, const Named& b, double tolerance, const std::string& what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  const double unit = largest(b);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LE((a[i].second - b[i].second).abs().max().item<double>(), tolerance * unit) << what << " " << a[i].first;
}

// Two steps on three ranks: decay moves a parameter even with a gradient of zero, so it tells whether one was left alone. `tied` counts
// once.
inline void expect_left_alone_without_gradient(const std::string& strategy, int lanes) {
  collective::run_ranks(3, [&](collective::Communicator& comm) {
    const at::Tensor everywhere = at::ones({600}).requires_grad_(true), somewhere = at::ones({2}).requires_grad_(true),
                     nowhere = at::ones({300}).requires_grad_(true);
    Engine engine(comm,
                  {{"e", everywhere, {.weight_decay = 0.5}}, {"s", somewhere}, {"n", nowhere, {.weight_decay = 0.5}}, {"tied", everywhere}},
                  {.strategy = strategy, .bucket = ByteSize{1}, .lanes = lanes}, optim::make("sgd(lr=1)"));
    for (int step = 1; step <= 2; ++step) {
      engine.begin({.step = step, .lr = 1});
      at::Tensor loss = everywhere.sum();
      if (comm.rank() == Rank{1}) loss = loss + 3 * somewhere.sum();
      loss.backward();
      engine.finish();
    }
    EXPECT_EQ(nowhere[299].item<float>(), 1) << "not even decayed";
    EXPECT_EQ(somewhere[0].item<float>(), -1);
    EXPECT_EQ(everywhere[599].item<float>(), 0.5F * (0.5F * 1 - 1) - 1);
  });
}

}  // namespace cohort::engine
