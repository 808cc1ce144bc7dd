#include "cohort/sync/comm_dtype.h"

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
#include "cohort/sync/coded_reduce.h"

namespace cohort::sync {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

constexpr std::int64_t kCount = 40'003;  // no multiple of ranks, lanes or blocks of conversion

double bits_of(Precision dtype) { return dtype == Precision::bf16 ? 8 : 11; }  // bits of precision
at::ScalarType type_of(Precision dtype) { return dtype == Precision::bf16 ? at::kBFloat16 : at::kHalf; }

at::Tensor gradient_of(int rank) {
  return at::randn({kCount}, at::detail::createCPUGenerator(3 + static_cast<std::uint64_t>(rank)), at::kFloat);
}

at::Tensor reduced(Communicator& comm, const at::Tensor& mine, Precision dtype, bool wide, collective::Op op = collective::Op::sum) {
  const at::Tensor param = at::zeros(mine.sizes(), mine.options()).requires_grad_(true);
  param.mutable_grad() = mine.clone();
  Bucket bucket(0, {{.name = "w", .param = param}}, comm);
  const auto strategy = with_comm_dtype(all_reduce(op), dtype, wide);
  for (int again = 0; again < 2; ++again) {  // its memory is used again from step to step
    param.grad().copy_(mine);
    strategy->reduce_gradients(bucket, {&comm, {}});
  }
  return param.grad().clone();
}

TEST(CommDtype, RoundsEveryAdditionOrOnceAsAskedFor) {
  for (const auto dtype : {Precision::bf16, Precision::fp16}) {
    const auto rounded = [&](const at::Tensor& t) { return t.to(type_of(dtype)).to(at::kFloat); };
    const at::Tensor a = rounded(gradient_of(0)), b = rounded(gradient_of(1)), c = rounded(gradient_of(2));
    const at::Tensor each = rounded(rounded(a.add(b)).add(c)), once = rounded(a.add(b).add(c));
    ASSERT_FALSE(at::equal(each, once));
    run_ranks(3, [&](Communicator& comm) {
      const at::Tensor mine = gradient_of(comm.rank().value);
      EXPECT_TRUE(at::equal(reduced(comm, mine, dtype, false), each)) << name_of(dtype);
      EXPECT_TRUE(at::equal(reduced(comm, mine, dtype, true), once)) << name_of(dtype);
    });
  }
}

// A sum in fp32 rounded once is off by at most half a unit in the last place; one rounded at each addition need not be.
TEST(CommDtype, ASumInFp32IsTheNearestNumber) {
  for (const auto dtype : {Precision::bf16, Precision::fp16}) {
    at::Tensor exact = at::zeros({kCount}, at::kDouble);
    for (int r = 0; r < 4; ++r) exact.add_(gradient_of(r).to(type_of(dtype)).to(at::kDouble));
    run_ranks(4, [&](Communicator& comm) {
      const auto error = [&](bool wide) {
        const at::Tensor off = reduced(comm, gradient_of(comm.rank().value), dtype, wide).to(at::kDouble).sub(exact).abs();
        return off.div(exact.abs().clamp_min(std::exp2(-13))).max().item<double>() * std::exp2(bits_of(dtype));
      };
      EXPECT_LE(error(true), 1.001) << name_of(dtype);
      EXPECT_GT(error(false), 1.001) << name_of(dtype);
    });
  }
}

TEST(CommDtype, AWorldOfOneRoundsOnlyAndAveragesDivideOnce) {
  run_ranks(1, [](Communicator& comm) {
    for (const bool wide : {false, true})
      EXPECT_TRUE(at::equal(reduced(comm, gradient_of(0), Precision::bf16, wide), gradient_of(0).to(at::kBFloat16).to(at::kFloat)));
  });
  run_ranks(2, [](Communicator& comm) {
    for (const bool wide : {false, true}) {
      const at::Tensor mean =
          reduced(comm, at::full({5}, comm.rank().value == 0 ? 1.0 : 4.0), Precision::fp16, wide, collective::Op::average);
      EXPECT_EQ(mean[3].item<float>(), 2.5F);
    }
  });
}

// What fp16 cannot hold is inf, which the step's vote finds. The mean of two large gradients it can hold, if the sum was made in fp32.
TEST(CommDtype, WhatFp16CannotHoldIsInfinite) {
  run_ranks(2, [](Communicator& comm) {
    const at::Tensor large = at::full({5}, 60000.0);
    for (const bool wide : {false, true}) EXPECT_TRUE(std::isinf(reduced(comm, large, Precision::fp16, wide)[0].item<float>()));
    EXPECT_TRUE(std::isinf(reduced(comm, large, Precision::fp16, false, collective::Op::average)[0].item<float>()));
    EXPECT_EQ(reduced(comm, large, Precision::fp16, true, collective::Op::average)[0].item<float>(), 60000);
  });
}

class Other final : public Strategy {
 public:
  std::string_view name() const override { return "zero"; }
  bool averages() const override { return false; }
  void reduce_gradients(Bucket&, const CommContext&) override {}
  void publish_parameters(Bucket&, const CommContext&) override {}
};

TEST(CommDtype, WhatItCannotConvertIsRefused) {
  EXPECT_THAT(failure_of([] { with_comm_dtype(std::make_unique<Other>(), Precision::bf16, false); }).what,
              HasSubstr("goes with sync=all_reduce"));
  EXPECT_EQ(with_comm_dtype(std::make_unique<Other>(), Precision::fp32, true)->name(), "zero");
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THAT(failure_of([&] { reduced(comm, at::full({3}, 1.0, at::kDouble), Precision::bf16, false); }).what, HasSubstr("Double"));
  });
}

at::Tensor reduced_by(Communicator& comm, const std::string& codec, const at::Tensor& mine, collective::Op op) {
  const auto count = static_cast<std::size_t>(kCount);
  const ElementRange whole[]{{0, count}};
  CodedReduce reduce(codec::make(codec), Layout{{{"w", 0, count}}, count}, cut(whole, count, comm.size()), ReduceTo::all, comm);
  const at::Tensor out = mine.clone();
  reduce.reduce(comm, {out.data_ptr(), count, Dtype::f32}, {}, op, {.step = 1});
  return out;
}

TEST(CommDtype, HasTheBitsOfTheCodecs) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    run_ranks(ranks, [&](Communicator& comm) {
      at::Tensor mine = gradient_of(comm.rank().value);
      mine.narrow(0, 0, 1000).mul_(std::exp2(-20));  // subnormal in fp16
      mine.narrow(0, 1000, 50).mul_(1e6);            // infinite there
      for (const auto op : {collective::Op::sum, collective::Op::average})
        for (const auto dtype : {Precision::bf16, Precision::fp16})
          for (const bool wide : {false, true}) {
            const std::string codec = std::string(name_of(dtype)) + (wide ? "(sum=fp32)" : "(sum=comm)");
            const at::Tensor a = reduced(comm, mine, dtype, wide, op), b = reduced_by(comm, codec, mine, op);
            EXPECT_TRUE(at::equal(a.isnan(), b.isnan()) && at::equal(a.nan_to_num().view(at::kInt), b.nan_to_num().view(at::kInt)))
                << codec << " on " << ranks;
          }
    });
}

}  // namespace
}  // namespace cohort::sync
