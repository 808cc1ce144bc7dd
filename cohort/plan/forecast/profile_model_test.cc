// What a profile says about a model, compared with the model really run.
#include "cohort/plan/forecast/profile_model.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>

#include "cohort/base/failure_of.h"
#include "cohort/base/model_sizes.h"
#include "cohort/nn/allocation_meter.h"
#include "cohort/nn/autocast.h"
#include "cohort/nn/build.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/zoo.h"
#include "cohort/plan/forecast/fake_tensor.h"

namespace cohort::plan::forecast {
namespace {

constexpr Device kSome{.flops = 1e12, .bytes = 1e11};  // nothing is timed here: tests promise no speed

struct Held {
  std::size_t kept = 0, peak = 0;
};

// The model with gradients in place, as the engine has them, run once for real.
Held really(const std::string& spec, const MicroBatch& micro_batch) {
  nn::Model model = nn::make_model(spec, 1);
  model.train();
  for (const auto& [name, p] : model.named_parameters()) p.mutable_grad() = at::zeros_like(p);
  std::vector<std::int64_t> sizes{micro_batch.batch};
  sizes.insert(sizes.end(), micro_batch.sample.begin(), micro_batch.sample.end());
  const at::Tensor x = micro_batch.tokens ? at::zeros(sizes, at::kLong) : at::rand(sizes);
  const bool regression = micro_batch.targets > 0;
  const at::Tensor labels = regression                ? at::zeros({micro_batch.batch, micro_batch.targets})
                            : micro_batch.next_tokens ? at::zeros({micro_batch.batch, micro_batch.sample[0]}, at::kLong)
                                                      : at::zeros({micro_batch.batch}, at::kLong);
  const nn::AllocationMeter meter;
  at::Tensor logits;
  {
    const autocast bf16(micro_batch.precision);
    logits = model.forward(x);
  }
  if (micro_batch.precision != Precision::fp32) logits = logits.to(at::kFloat);
  const at::Tensor loss = nn::ConfiguredLoss(micro_batch.loss, regression)(logits, labels).value / static_cast<double>(micro_batch.batch);
  logits.reset();
  Held held{.kept = meter.now()};
  loss.backward();
  held.peak = meter.peak();
  return held;
}

class EveryModel : public testing::TestWithParam<std::pair<std::string, MicroBatch>> {};

TEST_P(EveryModel, AllocatesAsTheRealOneDoes) {
  const auto& [spec, micro_batch] = GetParam();
  KernelTimings kernels(kSome);
  const plan::ModelProfile found = profile_model(spec, micro_batch, "none", kernels);
  const Held real = really(spec, micro_batch);
  EXPECT_NEAR(static_cast<double>(found.kept) / static_cast<double>(real.kept), 1, 0.03) << found.kept << " " << real.kept;
  EXPECT_NEAR(static_cast<double>(found.peak) / static_cast<double>(real.peak), 1, 0.06) << found.peak << " " << real.peak;
}

const MicroBatch kDigits{.sample = {1, 28, 28}, .batch = 8}, kPictures{.sample = {3, 32, 32}, .batch = 2},
    kHouses{.sample = {12}, .batch = 64, .targets = 2}, kText{.sample = {32}, .tokens = true, .next_tokens = true, .batch = 4};
MicroBatch in(Precision precision, MicroBatch micro_batch) {
  micro_batch.precision = precision;
  return micro_batch;
}
INSTANTIATE_TEST_SUITE_P(ModelProfile, EveryModel,
                         testing::Values(std::pair{"mlp(in=784, hidden=64x32)", kDigits}, std::pair{"cnn(norm=batch)", kDigits},
                                         std::pair{"resnet18(classes=10, stem=cifar)", kPictures},
                                         std::pair{"mlp(in=12, hidden=64x32, out=2)", kHouses},
                                         std::pair{"lstm(vocab=64, embed=32, hidden=48, context=32)", kText},
                                         std::pair{"gpt(vocab=64, context=32, d=32, heads=2, layers=2)", kText},
                                         std::pair{"mlp(in=784, hidden=64x32)", in(Precision::bf16, kDigits)},
                                         std::pair{"mlp(in=784, hidden=64x32)", in(Precision::fp16, kDigits)},
                                         std::pair{"cnn(norm=batch)", in(Precision::bf16, kDigits)},
                                         std::pair{"gpt(vocab=64, context=32, d=32, heads=2, layers=2)", in(Precision::bf16, kText)}));

TEST(ModelProfile, GradientsArriveFromTheLastBlockToTheFirst) {
  KernelTimings kernels(kSome);
  const plan::ModelProfile found = profile_model("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  ASSERT_EQ(found.parameters.size(), 6U);
  EXPECT_GT(found.parameters[0].arrives, found.parameters[4].arrives);
  EXPECT_LE(found.parameters[0].arrives, found.backward);
  EXPECT_EQ(found.parameters[0].block, 0U);
  EXPECT_EQ(found.parameters[5].block, 2U);
}

TEST(ModelProfile, CountsTheProductsOfAPerceptron) {
  KernelTimings kernels(kSome);
  const plan::ModelProfile found = profile_model("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  const double forward = 2.0 * 8 * (784 * 64 + 64 * 32 + 32 * 10);
  EXPECT_DOUBLE_EQ(found.flops, 3 * forward - 2.0 * 8 * 784 * 64);  // the images need no gradient
}

TEST(ModelProfile, RecomputingKeepsLessAndComputesMore) {
  const std::string spec = "gpt(vocab=64, context=32, d=32, heads=2, layers=6)";
  KernelTimings kernels(kSome);
  const plan::ModelProfile all = profile_model(spec, kText, "none", kernels), half = profile_model(spec, kText, "every(2)", kernels),
                           none = profile_model(spec, kText, "every(1)", kernels);
  EXPECT_LT(none.kept, half.kept);
  EXPECT_LT(half.kept, all.kept);
  EXPECT_LT(none.peak, all.peak);
  EXPECT_GT(none.flops, all.flops);
  EXPECT_NEAR(none.flops / all.flops, 4.0 / 3, 0.05);
  EXPECT_EQ(half.recompute, "every(2)");
}

TEST(ModelProfile, SixteenBitsKeepLess) {
  const std::string spec = "gpt(vocab=64, context=32, d=32, heads=2, layers=6)";
  KernelTimings kernels(kSome);
  const MicroBatch bf16 = in(Precision::bf16, kText);
  EXPECT_LT(profile_model(spec, bf16, "none", kernels).kept, profile_model(spec, kText, "none", kernels).kept);
  EXPECT_LT(profile_model(spec, bf16, "every(1)", kernels).kept, profile_model(spec, bf16, "none", kernels).kept);
}

TEST(ModelProfile, RecomputesTheBlocksThatTheSettingSays) {
  const std::string spec = "gpt(vocab=64, context=32, d=32, heads=2, layers=6)";
  KernelTimings kernels(kSome);
  const plan::ModelProfile all = profile_model(spec, kText, "none", kernels), every = profile_model(spec, kText, "every(2)", kernels);
  std::string names;
  for (std::size_t b = 1; b < all.blocks.size(); b += 2) names += (names.empty() ? "" : ", ") + all.blocks[b].name;
  EXPECT_EQ(profile_model(spec, kText, "names(" + names + ")", kernels).kept, every.kept);
  const plan::ModelProfile fitting = profile_model(spec, kText, "until_fits(1MiB)", kernels);
  EXPECT_LT(fitting.kept, all.kept);
  EXPECT_LE(fitting.kept, std::size_t{1} << 20);
  EXPECT_THAT(failure_of([&] { profile_model(spec, kText, "until_fits(1KiB)", kernels); }).what, testing::HasSubstr("until_fits"));
}

TEST(ModelProfile, AModelLargerThanThisMachineIsBuiltInNoMemory) {
  KernelTimings kernels(kSome);
  const auto address_space = [] {  // bytes: also what is never touched counts
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    file >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  };
  const std::size_t before = address_space();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const rlimit tight{before + (std::size_t{256} << 20), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0) << "one weight of it takes 2 GB";
  EXPECT_EQ(input_of("gpt(vocab=50257, context=2048, d=12288, heads=96, layers=96)", kernels).sizes, (std::vector<std::int64_t>{2048}));
  setrlimit(RLIMIT_AS, &limit);
}

TEST(ModelProfile, ModelsOfANamedSizeAreOfThatSize) {
  KernelTimings kernels(kSome);
  const FakeTensorMode here(kernels);
  kernels.clocked(false);
  for (const ModelSize& size : kModelSizes) {
    const auto count = static_cast<double>(nn::build_model(std::string(size.word)).parameter_count());
    EXPECT_NEAR(count / (size.millions * 1e6), 1, 0.001) << size.word << " has " << count;
  }
}

TEST(ModelProfile, ReadingAValueIsRefused) {
  KernelTimings kernels(kSome);
  const FakeTensorMode here(kernels);
  const at::Tensor x = fake_tensor({1}, at::kFloat);
  EXPECT_THAT(failure_of([&] { x.item<float>(); }).what, testing::HasSubstr("reads a value"));
}

TEST(ModelProfile, KernelsAreTimedOnceForAShape) {
  KernelTimings kernels;  // for real: there is a time, of no promised length
  const plan::ModelProfile first = profile_model("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  const std::size_t distinct = kernels.distinct();
  const plan::ModelProfile again = profile_model("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  EXPECT_EQ(kernels.distinct(), distinct);
  EXPECT_DOUBLE_EQ(first.forward, again.forward);
  EXPECT_GT(first.backward, 0);
}

}  // namespace
}  // namespace cohort::plan::forecast
