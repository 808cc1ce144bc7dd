// What a walk says about a model, held against the model really run.
#include "cohort/train/forecast/walk.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>

#include "cohort/base/failure_of.h"
#include "cohort/nn/autocast.h"
#include "cohort/nn/build.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/meter.h"
#include "cohort/nn/sizes.h"
#include "cohort/nn/zoo.h"
#include "cohort/train/forecast/phantom.h"

namespace cohort::forecast {
namespace {

constexpr Device kSome{.flops = 1e12, .bytes = 1e11};  // nothing is timed here: tests promise no speed

struct Held {
  std::size_t kept = 0, peak = 0;
};

// The model with gradients in place, as the engine has them, run once for real.
Held really(const std::string& spec, const Micro& micro) {
  nn::Model model = nn::make_model(spec, 1);
  model.train();
  for (const auto& [name, p] : model.named_parameters()) p.mutable_grad() = at::zeros_like(p);
  std::vector<std::int64_t> sizes{micro.batch};
  sizes.insert(sizes.end(), micro.sample.begin(), micro.sample.end());
  const at::Tensor x = micro.tokens ? at::zeros(sizes, at::kLong) : at::rand(sizes);
  const at::Tensor labels = micro.next_tokens ? at::zeros({micro.batch, micro.sample[0]}, at::kLong) : at::zeros({micro.batch}, at::kLong);
  const nn::Meter meter;
  at::Tensor logits;
  {
    const autocast narrow(micro.precision);
    logits = model.forward(x);
  }
  if (micro.precision != Precision::fp32) logits = logits.to(at::kFloat);
  const at::Tensor loss = nn::loss_of(logits, labels).value / static_cast<double>(micro.batch);
  logits.reset();
  Held held{.kept = meter.now()};
  loss.backward();
  held.peak = meter.peak();
  return held;
}

class EveryModel : public testing::TestWithParam<std::pair<std::string, Micro>> {};

TEST_P(EveryModel, LivesAsTheRealOneDoes) {
  const auto& [spec, micro] = GetParam();
  Kernels kernels(kSome);
  const plan::Walk found = walk(spec, micro, "none", kernels);
  const Held real = really(spec, micro);
  EXPECT_NEAR(static_cast<double>(found.kept) / static_cast<double>(real.kept), 1, 0.03) << found.kept << " " << real.kept;
  EXPECT_NEAR(static_cast<double>(found.peak) / static_cast<double>(real.peak), 1, 0.06) << found.peak << " " << real.peak;
}

const Micro kDigits{.sample = {1, 28, 28}, .batch = 8}, kPictures{.sample = {3, 32, 32}, .batch = 2},
    kText{.sample = {32}, .tokens = true, .next_tokens = true, .batch = 4};
Micro in(Precision precision, Micro micro) {
  micro.precision = precision;
  return micro;
}
INSTANTIATE_TEST_SUITE_P(Walk, EveryModel,
                         testing::Values(std::pair{"mlp(in=784, hidden=64x32)", kDigits}, std::pair{"cnn(norm=batch)", kDigits},
                                         std::pair{"resnet18(classes=10, stem=cifar)", kPictures},
                                         std::pair{"lstm(vocab=64, embed=32, hidden=48, context=32)", kText},
                                         std::pair{"gpt(vocab=64, context=32, d=32, heads=2, layers=2)", kText},
                                         std::pair{"mlp(in=784, hidden=64x32)", in(Precision::bf16, kDigits)},
                                         std::pair{"mlp(in=784, hidden=64x32)", in(Precision::fp16, kDigits)},
                                         std::pair{"cnn(norm=batch)", in(Precision::bf16, kDigits)},
                                         std::pair{"gpt(vocab=64, context=32, d=32, heads=2, layers=2)", in(Precision::bf16, kText)}));

TEST(Walk, GradientsArriveFromTheLastBlockToTheFirst) {
  Kernels kernels(kSome);
  const plan::Walk found = walk("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  ASSERT_EQ(found.parameters.size(), 6U);
  EXPECT_GT(found.parameters[0].arrives, found.parameters[4].arrives);
  EXPECT_LE(found.parameters[0].arrives, found.backward);
  EXPECT_EQ(found.parameters[0].block, 0U);
  EXPECT_EQ(found.parameters[5].block, 2U);
}

TEST(Walk, CountsTheProductsOfAPerceptron) {
  Kernels kernels(kSome);
  const plan::Walk found = walk("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  const double forward = 2.0 * 8 * (784 * 64 + 64 * 32 + 32 * 10);
  EXPECT_DOUBLE_EQ(found.flops, 3 * forward - 2.0 * 8 * 784 * 64);  // nobody wants the gradient of the pictures
}

TEST(Walk, RecomputingKeepsLessAndComputesMore) {
  const std::string spec = "gpt(vocab=64, context=32, d=32, heads=2, layers=6)";
  Kernels kernels(kSome);
  const plan::Walk all = walk(spec, kText, "none", kernels), half = walk(spec, kText, "every(2)", kernels),
                   none = walk(spec, kText, "every(1)", kernels);
  EXPECT_LT(none.kept, half.kept);
  EXPECT_LT(half.kept, all.kept);
  EXPECT_LT(none.peak, all.peak);
  EXPECT_GT(none.flops, all.flops);
  EXPECT_NEAR(none.flops / all.flops, 4.0 / 3, 0.05);
  EXPECT_EQ(half.recompute, "every(2)");
}

TEST(Walk, SixteenBitsKeepLess) {
  const std::string spec = "gpt(vocab=64, context=32, d=32, heads=2, layers=6)";
  Kernels kernels(kSome);
  const Micro narrow = in(Precision::bf16, kText);
  EXPECT_LT(walk(spec, narrow, "none", kernels).kept, walk(spec, kText, "none", kernels).kept);
  EXPECT_LT(walk(spec, narrow, "every(1)", kernels).kept, walk(spec, narrow, "none", kernels).kept);
}

TEST(Walk, RecomputesTheBlocksThatTheSettingSays) {
  const std::string spec = "gpt(vocab=64, context=32, d=32, heads=2, layers=6)";
  Kernels kernels(kSome);
  const plan::Walk all = walk(spec, kText, "none", kernels), every = walk(spec, kText, "every(2)", kernels);
  std::string names;
  for (std::size_t b = 1; b < all.blocks.size(); b += 2) names += (names.empty() ? "" : ", ") + all.blocks[b].name;
  EXPECT_EQ(walk(spec, kText, "names(" + names + ")", kernels).kept, every.kept);
  const plan::Walk fitting = walk(spec, kText, "until_fits(1MiB)", kernels);
  EXPECT_LT(fitting.kept, all.kept);
  EXPECT_LE(fitting.kept, std::size_t{1} << 20);
  EXPECT_THAT(failure_of([&] { walk(spec, kText, "until_fits(1KiB)", kernels); }).what, testing::HasSubstr("until_fits"));
}

TEST(Walk, AModelLargerThanThisMachineIsBuiltInNoMemory) {
  Kernels kernels(kSome);
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

TEST(Walk, ModelsOfANamedSizeAreOfThatSize) {
  Kernels kernels(kSome);
  const Haunted here(kernels);
  kernels.clocked(false);
  for (const nn::NamedSize& size : nn::kNamedSizes) {
    const auto count = static_cast<double>(nn::build_model(std::string(size.word)).parameter_count());
    EXPECT_NEAR(count / (size.millions * 1e6), 1, 0.001) << size.word << " has " << count;
  }
}

TEST(Walk, ReadingAValueIsRefused) {
  Kernels kernels(kSome);
  const Haunted here(kernels);
  const at::Tensor x = phantom({1}, at::kFloat);
  EXPECT_THAT(failure_of([&] { x.item<float>(); }).what, testing::HasSubstr("reads a value"));
}

TEST(Walk, KernelsAreTimedOnceForAShape) {
  Kernels kernels;  // for real: a time there is, how long it is nobody promises
  const plan::Walk first = walk("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  const std::size_t distinct = kernels.distinct();
  const plan::Walk again = walk("mlp(in=784, hidden=64x32)", kDigits, "none", kernels);
  EXPECT_EQ(kernels.distinct(), distinct);
  EXPECT_DOUBLE_EQ(first.forward, again.forward);
  EXPECT_GT(first.backward, 0);
}

}  // namespace
}  // namespace cohort::forecast
