#include "cohort/ddp/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/ddp/data_parallel.h"
#include "cohort/job/job.h"
#include "cohort/nn/autocast.h"

namespace cohort::ddp {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

at::Tensor parameter(float value = 1) { return at::full({4}, value).requires_grad_(true); }
void set_gradient(const at::Tensor& p, float value) { p.mutable_grad() = at::full_like(p, value); }

// Gradients of 2^-30 are below the smallest number of fp16, 2^-24: a layer's input gradient vanishes, and with it everything in front.
TEST(GradScaler, CuresGradientsThatUnderflowInFp16) {
  const auto gradient_of_first_layer = [](const char* rule) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Linear(8, 1));
    GradScaler scaler(rule);
    at::Tensor loss;
    {
      const autocast half(Precision::fp16);
      loss = net->forward(torch::ones({1, 8})).to(at::kFloat).sum() * std::exp2(-30.0);
    }
    scaler.scale(loss).backward();
    EXPECT_TRUE(scaler.unscale(net->parameters()));
    return net->parameters()[0].grad().abs().max().item<double>();
  };
  EXPECT_EQ(gradient_of_first_layer("none"), 0);
  const double found = gradient_of_first_layer("torch"), bound = std::exp2(-30.0);
  EXPECT_GT(found, bound / 100);
  EXPECT_LT(found, bound) << "the true gradient is a weight below 1 times 2^-30";
}

TEST(GradScaler, ChangesNoBitOfALoopThatDoesNotOverflow) {
  const auto train = [](const char* rule) {
    torch::manual_seed(5);
    torch::nn::Linear net(6, 3);
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    GradScaler scaler(rule);
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      scaler.scale(net->forward(torch::randn({5, 6})).square().mean()).backward();
      scaler.unscale(net->parameters());
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1);
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
    }
    return net->weight.detach().clone();
  };
  const at::Tensor plain = train("none");
  EXPECT_TRUE(at::equal(train("torch(window=3)"), plain)) << "powers of two, and fp32 is wide enough";
  EXPECT_TRUE(at::equal(train("constant(init=1024)"), plain));
}

TEST(GradScaler, LeavesOutAStepThatOverflowsAndGoesOn) {
  const at::Tensor p = parameter();
  torch::optim::SGD optimizer({p}, 1);
  GradScaler scaler("torch(init=8, window=2)");
  std::vector<double> scales;
  for (const float g : {8.F, kInf, 4.F, -kInf, 4.F, std::nanf(""), 2.F, 2.F}) {
    set_gradient(p, g);
    EXPECT_EQ(scaler.step(optimizer), std::isfinite(g));
    scaler.update();
    scales.push_back(scaler.value());
  }
  EXPECT_THAT(scales, testing::ElementsAre(8, 4, 4, 2, 2, 1, 1, 2));
  EXPECT_EQ(p[0].item<float>(), 1 - 1 - 1 - 2 - 2 - 2) << "8/8, 4/4, 4/2, 2/1, 2/1";
  EXPECT_EQ(scaler.skipped(), 3);
}

TEST(GradScaler, UnscalesOnceAnIterationWhoeverAsks) {
  const at::Tensor p = parameter(), q = parameter();
  torch::optim::SGD optimizer({p, q}, 1);
  GradScaler scaler("constant(init=4)");
  set_gradient(p, 4), set_gradient(q, 4);
  EXPECT_TRUE(scaler.unscale(std::vector<at::Tensor>{p}));
  EXPECT_TRUE(scaler.unscale(std::vector<at::Tensor>{p, p}));
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_EQ(p[0].item<float>(), 0);
  EXPECT_EQ(q[0].item<float>(), 0);
  scaler.update();
  EXPECT_THAT(failure_of([&] { scaler.update(); }).what, HasSubstr("before step()"));
}

TEST(GradScaler, EachOptimizerStepsOnItsOwnVerdict) {
  const at::Tensor good = parameter(), bad = parameter(), without = parameter();
  torch::optim::SGD first({bad, without}, 1), second({good}, 1);
  GradScaler scaler("torch(init=2)");
  set_gradient(good, 2), set_gradient(bad, kInf);
  EXPECT_FALSE(scaler.step(first));
  EXPECT_TRUE(scaler.step(second));
  scaler.update();
  EXPECT_EQ(scaler.value(), 1) << "one overflow is enough";
  EXPECT_EQ(good[0].item<float>(), 0);
  EXPECT_EQ(bad[0].item<float>(), 1);
}

TEST(GradScaler, SparseGradientsAreUnscaledAfterTheirDoubledIndicesWereAdded) {
  const auto step = [](float value) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    table->weight.detach().zero_();
    torch::optim::SGD optimizer(table->parameters(), 1);
    GradScaler scaler("constant(init=2)");
    (table->forward(torch::tensor({1, 1, 3})) * value).sum().backward();
    const bool stepped = scaler.step(optimizer);
    return std::pair(stepped, table->weight.detach()[1][0].item<float>());
  };
  EXPECT_EQ(step(3), std::pair(true, -3.F));
  EXPECT_EQ(step(3e38F), std::pair(false, 0.F)) << "twice 3e38 is more than fp32 holds";
}

TEST(GradScaler, RefusesGradientsOf16Bits) {
  const at::Tensor p = at::ones({2}, at::kHalf).requires_grad_(true);
  p.mutable_grad() = at::ones_like(p);
  GradScaler scaler;
  EXPECT_THAT(failure_of([&] { scaler.unscale(std::vector<at::Tensor>{p}); }).what, HasSubstr("cohort::autocast"));
  EXPECT_EQ(scaler.scale(at::ones({}, at::kHalf)).item<float>(), 65536) << "which fp16 could not hold";
}

TEST(GradScaler, GoesOnFromItsSavedStateBitForBit) {
  const at::Tensor p = parameter();
  torch::optim::SGD optimizer({p}, 0);
  GradScaler whole("torch(init=7.7, up=1.3, down=0.7, window=3)");
  const auto step = [&](GradScaler& scaler, int i) {
    set_gradient(p, i % 5 == 3 ? kInf : 1);
    scaler.step(optimizer);
    scaler.update();
  };
  for (int i = 0; i < 20; ++i) {
    GradScaler again("torch(init=7.7, up=1.3, down=0.7, window=3)");
    again.restore(whole.state());
    EXPECT_EQ(again.state(), whole.state());
    step(again, i);
    step(whole, i);
    EXPECT_EQ(again.state(), whole.state());
  }
  EXPECT_EQ(failure_of([&] { whole.restore("torch"); }).kind, Kind::corrupt);
}

TEST(GradScaler, RanksAgreeOnWhatIsLeftOut) {
  run_ranks(3, [](Communicator& comm) {
    const at::Tensor p = parameter();
    torch::optim::SGD optimizer({p}, 1);
    GradScaler scaler(comm, "torch(init=2)");
    for (int step = 0; step < 4; ++step) {
      set_gradient(p, step % 2 == 1 && comm.rank().value == step / 2 ? kInf : static_cast<float>(scaler.value()));
      EXPECT_EQ(scaler.step(optimizer), step % 2 == 0) << "step " << step << " on rank " << comm.rank().value;
      scaler.update();
    }
    EXPECT_EQ(scaler.skipped(), 2);
    EXPECT_EQ(p[0].item<float>(), -1);
  });
  Job job = init(group::RankInfo{});
  GradScaler alone(job);
  EXPECT_EQ(alone.value(), 65536);
}

// Behind DataParallel every rank has the average, so no further communication is needed.
TEST(GradScaler, WorksBesideDataParallelWithoutACommunicator) {
  run_ranks(2, [](Communicator& comm) {
    torch::nn::Linear net(3, 1);
    DataParallel ddp(comm, *net, {.lanes = 0});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    GradScaler scaler("torch(init=16)");
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const double poison = step == 1 && comm.rank() == Rank{1} ? kInf : 1;
      scaler.scale(net->forward(torch::ones({2, 3})).sum() * poison).backward();
      EXPECT_EQ(scaler.step(optimizer), step != 1);
      EXPECT_EQ(ddp.finite(), step != 1);
      scaler.update();
    }
    EXPECT_EQ(scaler.value(), 8);
  });
}

}  // namespace
}  // namespace cohort::ddp
