// Models on a GPU whose gradients, optimizer state and masters are the host's: zero(stage=2|3, offload=host).
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

constexpr const char* kSmallGpt = "gpt(vocab=17, context=8, d=16, heads=2, layers=2)";

TrainCase on_gpu(TrainCase train_case, int stage, int lanes) {
  train_case.device = at::Device(at::kCUDA, 0);
  train_case.options.strategy = fmt::format("zero(stage={}, op=sum, offload=host)", stage);
  train_case.options.lanes = lanes;
  return train_case;
}

TrainCase case_of(const char* model, at::ScalarType type) {
  return {.model = model, .type = type, .rule = "adamw(lr=0.01)", .steps = 4, .rows = {4, 3}};
}

// Backwards of one process share a thread for each GPU, where ranks as threads would wait for each other: one rank, unless lanes reduce
// everything.
TrainCase fit(TrainCase train_case, int stage, int lanes) { return lanes == 0 || stage == 3 ? alone(std::move(train_case)) : train_case; }

Named on_cpu(Named all) {
  for (auto& [name, t] : all) t = t.cpu();
  return all;
}

class GpuOffload : public testing::TestWithParam<std::tuple<const char*, int, int>> {};

TEST_P(GpuOffload, TrainsAsTheCpuDoes) {
  const auto& [model, stage, lanes] = GetParam();
  const TrainCase train_case = fit(case_of(model, at::kDouble), stage, lanes);
  const auto expected = train_ranks(train_case), found = train_ranks(on_gpu(train_case, stage, lanes));
  for (std::size_t r = 0; r < found.size(); ++r) {
    EXPECT_TRUE(found[r].params[0].second.is_cuda());
    expect_near(on_cpu(found[r].params), expected[r].params, 1e-10);
  }
}

TEST_P(GpuOffload, RepeatsBitForBitOnEveryRank) {
  const auto& [model, stage, lanes] = GetParam();
  const TrainCase train_case = on_gpu(fit(case_of(model, at::kFloat), stage, lanes), stage, lanes);
  const auto once = train_ranks(train_case);
  expect_same_bits(train_ranks(train_case), once);
  expect_same_bits(once.front().params, once.back().params);
}

INSTANTIATE_TEST_SUITE_P(All, GpuOffload,
                         testing::Combine(testing::Values(kTinyMlp, kSmallGpt), testing::Values(2, 3), testing::Values(0, 1)));

}  // namespace
}  // namespace cohort::engine
