// backend: nccl at a world of one, on a GPU: every collective it carries is the identity (scaled), what it does not is refused or done by
// the native backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/collective/plugin/backend.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;

class NcclAlone : public ::testing::Test {
 protected:
  std::unique_ptr<Communicator> comm =
      open(std::move(net::loopback_world(1).front()), {.timeout = Seconds{60}, .canonical_only = false}, BackendOptions{.name = "nccl"});
  static Piece gpu(const at::Tensor& t, Dtype dtype) { return {t.data_ptr(), static_cast<std::size_t>(t.numel()), dtype, Device::cuda}; }
  at::Tensor in = at::arange(1000, at::device(at::kCUDA).dtype(at::kFloat));
};

}  // namespace

TEST_F(NcclAlone, AllReduceOfOneRankIsItsScaledInput) {
  at::Tensor data = in.clone();
  comm->all_reduce(gpu(data, Dtype::f32), Op::sum);
  EXPECT_TRUE(at::equal(data, in));
  comm->all_reduce(gpu(data, Dtype::f32), Op::average, {.prescale = 2.0, .postscale = 0.25});
  EXPECT_TRUE(at::equal(data, in * 0.5));
  at::Tensor narrow = in.to(at::kBFloat16), want = narrow.clone();
  comm->all_reduce(gpu(narrow, Dtype::bf16), Op::sum);
  EXPECT_TRUE(at::equal(narrow, want));
}

TEST_F(NcclAlone, TheOtherCollectivesAreIdentitiesToo) {
  const at::Tensor out = at::zeros_like(in);
  const std::vector<std::size_t> all{1000};
  comm->reduce_scatter(gpu(in, Dtype::f32), gpu(out, Dtype::f32), Op::sum, {}, all);
  EXPECT_TRUE(at::equal(out, in));
  out.zero_();
  comm->all_gather(gpu(in, Dtype::f32), gpu(out, Dtype::f32));
  EXPECT_TRUE(at::equal(out, in));
  comm->broadcast(gpu(out, Dtype::f32), Rank{0});
  EXPECT_TRUE(at::equal(out, in));
  out.zero_();
  comm->reduce(gpu(in, Dtype::f32), gpu(out, Dtype::f32), Op::sum, Rank{0});
  EXPECT_TRUE(at::equal(out, in));
  out.zero_();
  comm->all_to_all(gpu(in, Dtype::f32), gpu(out, Dtype::f32));
  EXPECT_TRUE(at::equal(out, in));
  EXPECT_THAT(comm->explain(gpu(in, Dtype::f32), Op::sum), HasSubstr("nccl of torch on cuda:"));
}

TEST_F(NcclAlone, CpuMemoryIsDoneByTheNativeBackend) {
  std::vector<float> values{1, 2, 3};
  comm->all_reduce(piece(std::span(values)), Op::average, {.prescale = 2.0});
  EXPECT_EQ(values[2], 6.0F);
}

TEST_F(NcclAlone, WhatItDoesNotDoIsRefusedBeforeAnythingMoves) {
  const at::Tensor out = at::zeros_like(in);
  const auto refused = [](const std::function<void()>& act) {
    try {
      act();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
      return std::string(failure.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(refused([&] { comm->gather(gpu(in, Dtype::f32), gpu(out, Dtype::f32), Rank{0}); }), HasSubstr("backend: nccl does not"));
  EXPECT_TRUE(at::equal(out, at::zeros_like(in)));
}

TEST_F(NcclAlone, WhatItDoesNotReduceGoesByWayOfTheHost) {
  const at::Tensor most = in.clone();
  comm->all_reduce(gpu(most, Dtype::f32), Op::max);
  EXPECT_TRUE(at::equal(most, in));
  EXPECT_NE(comm->allocate(64, Device::cuda).data(), nullptr);
}

}  // namespace cohort::collective
