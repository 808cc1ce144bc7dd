// Models on a GPU whose gradients, optimizer state and masters are the host's: zero(stage=2|3, offload=host).
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

constexpr const char* kSmallGpt = "gpt(vocab=17, context=8, d=16, heads=2, layers=2)";

Lesson on_gpu(Lesson lesson, int stage, int lanes) {
  lesson.device = at::Device(at::kCUDA, 0);
  lesson.options.strategy = fmt::format("zero(stage={}, op=sum, offload=host)", stage);
  lesson.options.lanes = lanes;
  return lesson;
}

Lesson lesson_of(const char* model, at::ScalarType type) {
  return {.model = model, .type = type, .rule = "adamw(lr=0.01)", .steps = 4, .rows = {4, 3}};
}

// Backwards of one process share a thread for each GPU, where ranks as threads would wait for each other: one rank, unless lanes carry
// everything.
Lesson fit(Lesson lesson, int stage, int lanes) { return lanes == 0 || stage == 3 ? alone(std::move(lesson)) : lesson; }

Named on_cpu(Named all) {
  for (auto& [name, t] : all) t = t.cpu();
  return all;
}

class GpuOffload : public testing::TestWithParam<std::tuple<const char*, int, int>> {};

TEST_P(GpuOffload, LearnsWhatTheCpuLearns) {
  const auto& [model, stage, lanes] = GetParam();
  const Lesson lesson = fit(lesson_of(model, at::kDouble), stage, lanes);
  const auto expected = learn(lesson), found = learn(on_gpu(lesson, stage, lanes));
  for (std::size_t r = 0; r < found.size(); ++r) {
    EXPECT_TRUE(found[r].params[0].second.is_cuda());
    expect_near(on_cpu(found[r].params), expected[r].params, 1e-10);
  }
}

TEST_P(GpuOffload, RepeatsBitForBitOnEveryRank) {
  const auto& [model, stage, lanes] = GetParam();
  const Lesson lesson = on_gpu(fit(lesson_of(model, at::kFloat), stage, lanes), stage, lanes);
  const auto once = learn(lesson);
  expect_same_bits(learn(lesson), once);
  expect_same_bits(once.front().params, once.back().params);
}

INSTANTIATE_TEST_SUITE_P(All, GpuOffload,
                         testing::Combine(testing::Values(kTinyMlp, kSmallGpt), testing::Values(2, 3), testing::Values(0, 1)));

TEST(Gpu, OtherStrategiesSayWhatToDo) {
  Lesson lesson = lesson_of(kTinyMlp, at::kFloat);
  lesson.rows = {4};
  lesson.device = at::Device(at::kCUDA, 0);
  EXPECT_THAT(failure_of([&] { learn(lesson); }).what, testing::HasSubstr("zero(stage=2, offload=host)"));
}

}  // namespace
}  // namespace cohort::engine
