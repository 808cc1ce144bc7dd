#include "cohort/engine/bucket.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"

namespace cohort::engine {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

at::Tensor leaf(std::int64_t n, double value = 1, at::ScalarType type = at::kFloat) {
  return at::full({n}, value, type).requires_grad_(true);
}

std::vector<TrainedTensor> two() { return {{.name = "w", .param = leaf(3), .order = 1}, {.name = "b", .param = leaf(20), .order = 0}}; }

TEST(Bucket, GradientsAreViewsIntoItsMemoryAndKeepTheirValues) {
  run_ranks(1, [](Communicator& comm) {
    auto members = two();
    members[1].param.mutable_grad() = at::arange(20, at::kFloat);
    Bucket bucket(3, members, comm);
    EXPECT_EQ(bucket.name(), "bucket 3 (w .. b)");
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto& m = bucket.members()[i];
      EXPECT_EQ(bucket.param(i).grad().data_ptr(), bucket.gradient(m));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bucket.gradient(m)) % 64, 0u);
      bucket.param(i).grad().detach_();  // as libtorch's zero_grad() does
    }
    EXPECT_TRUE(at::equal(members[1].param.grad(), at::arange(20, at::kFloat)));
    bucket.clear();
    EXPECT_EQ(members[1].param.grad().abs().max().item<float>(), 0);
  });
}

TEST(Bucket, TakesGradientsBackThatWereDroppedReplacedOrSparse) {
  run_ranks(1, [](Communicator& comm) {
    auto members = two();
    Bucket bucket(0, members, comm);
    members[0].param.grad().fill_(5);
    members[0].param.mutable_grad().reset();
    members[1].param.mutable_grad() = at::arange(20, at::kFloat);
    bucket.gather();
    EXPECT_EQ(members[0].param.grad().max().item<float>(), 0) << "a dropped gradient is zero, not what it was";
    EXPECT_EQ(members[1].param.grad().data_ptr(), bucket.gradient(bucket.members()[1]));
    EXPECT_EQ(members[1].param.grad()[19].item<float>(), 19);
    members[1].param.mutable_grad() = at::arange(20, at::kFloat).to_sparse();
    bucket.gather();
    EXPECT_EQ(members[1].param.grad()[18].item<float>(), 18);
    EXPECT_EQ(members[1].param.grad().layout(), at::kStrided);
  });
}

TEST(Bucket, MovesGradientsIntoOtherMemoryOnce) {
  run_ranks(1, [](Communicator& comm) {
    auto members = two();
    Bucket bucket(0, members, comm);
    members[1].param.grad().copy_(at::arange(20, at::kFloat));
    const collective::Region fresh = comm.allocate(bucket.bytes());
    bucket.rebase(fresh);
    bucket.rebase(fresh);
    EXPECT_EQ(bucket.gradients().data, fresh.data());
    EXPECT_EQ(members[1].param.grad()[19].item<float>(), 19);
    EXPECT_EQ(members[1].param.grad().data_ptr(), bucket.gradient(bucket.members()[1]));
    const auto error = failure_of([&] { bucket.rebase(comm.allocate(bucket.bytes() - 64)); });
    EXPECT_THAT(error.what, HasSubstr("do not fit"));
  });
}

TEST(Bucket, OwnedParametersKeepIdentityAndValuesAndOutliveIt) {
  for (const std::int64_t n : {20, 1 << 20}) {  // ordinary memory, and huge pages
    const at::Tensor w = at::arange(n, at::kFloat).requires_grad_(true);
    const void* const impl = w.unsafeGetTensorImpl();
    run_ranks(1, [&](Communicator& comm) {
      Bucket bucket(0, {{.name = "w", .param = w}}, comm);
      EXPECT_FALSE(bucket.owns_parameters());
      const auto rule = optim::make("adagrad(initial_accumulator_value=0.5)");
      bucket.own_parameters(*rule, comm);
      std::vector<void*> state;
      const auto slice = bucket.slice(bucket.members()[0], state);
      EXPECT_EQ(slice.param, w.data_ptr());
      EXPECT_EQ(slice.grad, w.grad().data_ptr());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slice.param) % 64, 0u);
      EXPECT_EQ(borrowed(bucket.owned_state(bucket.members()[0], 0))[n - 1].item<float>(), 0.5F);
    });
    EXPECT_EQ(w.unsafeGetTensorImpl(), impl);
    EXPECT_TRUE(w.requires_grad());
    EXPECT_TRUE(at::equal(w.detach(), at::arange(n, at::kFloat)));
    EXPECT_EQ(w.grad().max().item<float>(), 0);
  }
}

TEST(Bucket, RefusesWhatItCannotHold) {
  run_ranks(1, [](Communicator& comm) {
    const auto why = [&](const at::Tensor& t) { return failure_of([&] { Bucket(0, {{.name = "w", .param = t}}, comm); }); };
    EXPECT_THAT(why(at::ones({2}, at::kHalf)).what, HasSubstr("Half"));
    EXPECT_THAT(why(at::ones({2, 3}).t()).what, HasSubstr("not contiguous"));
  });
}

}  // namespace
}  // namespace cohort::engine
