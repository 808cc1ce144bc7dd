// For tests: a small model on every rank, ranks as threads, trained by an Engine on parts of one global batch.
//   Lesson lesson{.model = "mlp(in=6, hidden=8, out=3)", .rows = {4, 4}};
//   std::vector<Learned> ranks = learn(lesson);        // ranks[1].params[0].second: first parameter of rank 1 after the last step
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

struct Context {  // what meddlers may touch
  collective::Communicator& comm;
  Engine& engine;
  nn::Model& model;
  int step;  // from 1
};
using Meddle = std::function<void(const Context&)>;

struct Lesson {
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
  Meddle after_begin{}, before_finish{}, after_finish{};
  std::function<void(nn::Model&)> shape{};  // before the engine exists
  std::function<void(Engine&)> survived{};  // after another rank was lost; none: that failure goes on
};

using Named = std::vector<std::pair<std::string, at::Tensor>>;
struct Learned {
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

inline void backward_of(const Lesson& lesson, Engine& engine, nn::Model& model, collective::Communicator& comm, int step,
                        const optim::StepInfo& info) {
  const auto me = static_cast<std::size_t>(comm.rank().value);
  const std::int64_t total = std::accumulate(lesson.rows.begin(), lesson.rows.end(), std::int64_t{0});
  std::int64_t first = std::accumulate(lesson.rows.begin(), lesson.rows.begin() + static_cast<std::ptrdiff_t>(me), std::int64_t{0});
  const std::int64_t part = lesson.rows[me] / lesson.micro;
  for (int k = 0; k < lesson.micro; ++k, first += part) {
    engine.begin(info, k + 1 == lesson.micro);
    if (lesson.after_begin) lesson.after_begin({comm, engine, model, step});
    if (part > 0 || engine.shards_parameters()) loss_of_rows(model, lesson.type, step, total, first, part).backward();
  }
}

inline Learned learn_here(const Lesson& lesson, collective::Communicator& comm) {
  nn::Model model = nn::make_model(lesson.model, kTestSeed);
  model.to(lesson.type);
  if (!lesson.device.is_cpu()) model.root().to(lesson.device);
  if (lesson.shape) lesson.shape(model);
  auto rule = lesson.rule.empty() ? nullptr : optim::make(lesson.rule);
  const double lr = rule ? rule->default_lr() : 0;
  auto parameters = parameters_of(model, lesson.weight_decay);
  share_out(model, parameters);
  Engine engine(comm, std::move(parameters), lesson.options, std::move(rule), 2, comm.size());
  model.around(engine.around());
  Learned learned;
  try {
    for (int step = 1; step <= lesson.steps; ++step) {
      backward_of(lesson, engine, model, comm, step, {.step = step, .lr = lr, .grad_scale = lesson.grad_scale});
      if (lesson.before_finish) lesson.before_finish({comm, engine, model, step});
      learned.verdicts.push_back(engine.finish());
      if (lesson.after_finish) lesson.after_finish({comm, engine, model, step});
    }
  } catch (const Failure&) {
    if (!lesson.survived) throw;
    return lesson.survived(engine), learned;
  }
  engine.make_whole();
  learned.params = copies(model.named_parameters());
  learned.grads = copies(model.named_parameters(), true);
  if (!engine.shards_state())
    engine.each_state(
        [&](const std::string& p, const std::string& s, const at::Tensor& v) { learned.state.emplace_back(p + "/" + s, v.clone()); });
  learned.buckets = engine.buckets().size();
  learned.sharded = engine.shards_state();
  return learned;
}

inline std::vector<Learned> learn(const Lesson& lesson) {
  at::set_num_threads(1);
  std::vector<Learned> all(lesson.rows.size());
  collective::run_ranks(static_cast<int>(lesson.rows.size()), [&](collective::Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank().value)] = learn_here(lesson, comm);
  });
  return all;
}

inline Lesson alone(Lesson lesson) {  // the same global batch on one rank
  lesson.rows = {std::accumulate(lesson.rows.begin(), lesson.rows.end(), std::int64_t{0})};
  return lesson;
}

inline void expect_same_bits(const Named& a, const Named& b, const std::string& what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << what << " " << a[i].first;
}

// Gradients and state only where both have them whole: a sharded engine does not.
inline void expect_same_bits(const std::vector<Learned>& a, const std::vector<Learned>& b, const std::string& what = "") {
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

}  // namespace cohort::engine
