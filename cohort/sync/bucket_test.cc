#include "cohort/sync/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/sync/strategy.h"

namespace cohort::sync {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

std::vector<Member> two() { return {{.name = "w", .shape = {3}, .order = 1}, {.name = "b", .shape = {4, 5}, .order = 0}}; }

TEST(Bucket, TensorsStartOnCacheLines) {
  std::vector<Member> members = two();
  EXPECT_EQ(assign_offsets(members, Dtype::f32), 16u + 32u);
  EXPECT_EQ(members[1].first, 16u);
  EXPECT_EQ(members[1].count, 20u);
  EXPECT_EQ(assign_offsets(members, Dtype::f64), 8u + 24u);
}

TEST(Bucket, ASlotOfAStrategyHoldsAllElementsAndIsFoundAgain) {
  run_ranks(1, [](Communicator& comm) {
    Bucket bucket(0, two(), Dtype::f32, comm);
    const Piece fresh = bucket.open_slot("anchor");
    EXPECT_EQ(fresh.count, bucket.count());
    static_cast<float*>(fresh.data)[5] = 3;
    EXPECT_EQ(bucket.open_slot("anchor").data, fresh.data) << "and not again";
    EXPECT_EQ(static_cast<float*>(bucket.slot("anchor").data)[5], 3);
    EXPECT_FALSE(bucket.has_slot("other"));
  });
}

TEST(Bucket, ASlotMayHaveANumberForEachTensor) {
  run_ranks(1, [](Communicator& comm) {
    Bucket bucket(0, two(), Dtype::f32, comm);
    const Piece numbers = bucket.open_slot("weight", nullptr, true);
    ASSERT_EQ(numbers.count, 2U);
    begin_slot(bucket, {.name = "weight", .begins = SlotSpec::Begins::one, .per_tensor = true});
    static_cast<float*>(bucket.slot("weight", bucket.members()[1]).data)[0] = 3;
    EXPECT_EQ(static_cast<float*>(numbers.data)[0], 1);
    EXPECT_EQ(static_cast<float*>(numbers.data)[1], 3);
  });
}

TEST(Bucket, ACodecIsForF32) {
  run_ranks(1, [](Communicator& comm) {
    Bucket bucket(0, two(), Dtype::f64, comm);
    EXPECT_THAT(failure_of([&] { bucket.reduce_by(codec::make("int8"), comm); }).what, HasSubstr("f64"));
  });
}

TEST(Strategy, UnknownOnesAreNamedWithTheKnown) {
  EXPECT_THAT(failure_of([] { make("gossip"); }).what, HasSubstr("all_reduce"));
  EXPECT_THAT(failure_of([] { make("all_reduce(op=max)"); }).what, HasSubstr("max"));
}

}  // namespace
}  // namespace cohort::sync
