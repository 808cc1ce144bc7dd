#include "cohort/sync/narrow.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"

namespace cohort::sync {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

constexpr std::int64_t kCount = 40'003;  // no multiple of ranks, lanes or blocks of widening

double bits_of(Precision wire) { return wire == Precision::bf16 ? 8 : 11; }  // bits of precision
at::ScalarType type_of(Precision wire) { return wire == Precision::bf16 ? at::kBFloat16 : at::kHalf; }

at::Tensor gradient_of(int rank) {
  return at::randn({kCount}, at::detail::createCPUGenerator(3 + static_cast<std::uint64_t>(rank)), at::kFloat);
}

at::Tensor agreed(Communicator& comm, const at::Tensor& mine, Precision wire, bool wide, collective::Op op = collective::Op::sum) {
  const at::Tensor param = at::zeros(mine.sizes(), mine.options()).requires_grad_(true);
  param.mutable_grad() = mine.clone();
  Bucket bucket(0, {{.name = "w", .param = param}}, comm);
  const auto strategy = narrowed(all_reduce(op), wire, wide);
  for (int again = 0; again < 2; ++again) {  // its memory is used again from step to step
    param.grad().copy_(mine);
    strategy->agree(bucket, {&comm, {}});
  }
  return param.grad().clone();
}

TEST(NarrowWire, RoundsEveryAdditionOrOnceAsAskedFor) {
  for (const auto wire : {Precision::bf16, Precision::fp16}) {
    const auto narrow = [&](const at::Tensor& t) { return t.to(type_of(wire)).to(at::kFloat); };
    const at::Tensor a = narrow(gradient_of(0)), b = narrow(gradient_of(1)), c = narrow(gradient_of(2));
    const at::Tensor each = narrow(narrow(a.add(b)).add(c)), once = narrow(a.add(b).add(c));
    ASSERT_FALSE(at::equal(each, once));
    run_ranks(3, [&](Communicator& comm) {
      const at::Tensor mine = gradient_of(comm.rank().value);
      EXPECT_TRUE(at::equal(agreed(comm, mine, wire, false), each)) << name_of(wire);
      EXPECT_TRUE(at::equal(agreed(comm, mine, wire, true), once)) << name_of(wire);
    });
  }
}

// A sum in fp32 rounded once is off by at most half a unit in the last place; one rounded at each addition need not be.
TEST(NarrowWire, ASumInFp32IsTheNearestNumber) {
  for (const auto wire : {Precision::bf16, Precision::fp16}) {
    at::Tensor exact = at::zeros({kCount}, at::kDouble);
    for (int r = 0; r < 4; ++r) exact.add_(gradient_of(r).to(type_of(wire)).to(at::kDouble));
    run_ranks(4, [&](Communicator& comm) {
      const auto error = [&](bool wide) {
        const at::Tensor off = agreed(comm, gradient_of(comm.rank().value), wire, wide).to(at::kDouble).sub(exact).abs();
        return off.div(exact.abs().clamp_min(std::exp2(-13))).max().item<double>() * std::exp2(bits_of(wire));
      };
      EXPECT_LE(error(true), 1.001) << name_of(wire);
      EXPECT_GT(error(false), 1.001) << name_of(wire);
    });
  }
}

TEST(NarrowWire, AWorldOfOneRoundsOnlyAndAveragesDivideOnce) {
  run_ranks(1, [](Communicator& comm) {
    for (const bool wide : {false, true})
      EXPECT_TRUE(at::equal(agreed(comm, gradient_of(0), Precision::bf16, wide), gradient_of(0).to(at::kBFloat16).to(at::kFloat)));
  });
  run_ranks(2, [](Communicator& comm) {
    for (const bool wide : {false, true}) {
      const at::Tensor mean =
          agreed(comm, at::full({5}, comm.rank().value == 0 ? 1.0 : 4.0), Precision::fp16, wide, collective::Op::average);
      EXPECT_EQ(mean[3].item<float>(), 2.5F);
    }
  });
}

// What fp16 cannot hold is inf, which the step's vote finds. The mean of two large gradients it can hold, if the sum was made in fp32.
TEST(NarrowWire, WhatFp16CannotHoldIsInfinite) {
  run_ranks(2, [](Communicator& comm) {
    const at::Tensor large = at::full({5}, 60000.0);
    for (const bool wide : {false, true}) EXPECT_TRUE(std::isinf(agreed(comm, large, Precision::fp16, wide)[0].item<float>()));
    EXPECT_TRUE(std::isinf(agreed(comm, large, Precision::fp16, false, collective::Op::average)[0].item<float>()));
    EXPECT_EQ(agreed(comm, large, Precision::fp16, true, collective::Op::average)[0].item<float>(), 60000);
  });
}

class Other final : public Strategy {
 public:
  std::string_view name() const override { return "zero"; }
  bool averages() const override { return false; }
  void agree(Bucket&, const Wire&) override {}
  void publish(Bucket&, const Wire&) override {}
};

TEST(NarrowWire, WhatItCannotNarrowIsRefused) {
  EXPECT_THAT(failure_of([] { narrowed(std::make_unique<Other>(), Precision::bf16, false); }).what, HasSubstr("goes with all_reduce"));
  EXPECT_EQ(narrowed(std::make_unique<Other>(), Precision::fp32, true)->name(), "zero");
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THAT(failure_of([&] { agreed(comm, at::full({3}, 1.0, at::kDouble), Precision::bf16, false); }).what, HasSubstr("Double"));
  });
}

}  // namespace
}  // namespace cohort::sync
