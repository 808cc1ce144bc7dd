#include "cohort/train/loop/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/collective/ranks.h"

namespace cohort::train {
namespace {

using collective::Communicator;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kNames{"fc1.weight", "fc1.bias"};

std::string text_of(const std::vector<std::uint32_t>& sums) { return describe_divergence(kNames, sums, 200).value_or("equal"); }

TEST(Replicas, AreEqualOrTheRankAgainstTheMajorityIsNamedWithTheFirstTensor) {
  EXPECT_EQ(text_of({1, 2, 1, 2, 1, 2}), "equal");
  EXPECT_EQ(text_of({}), "equal");
  EXPECT_THAT(text_of({1, 2, 1, 0xabc, 1, 2}),
              HasSubstr("after update 200 rank 1 holds other values than the others: 'fc1.bias' is the first that differs, 00000002 on "
                        "ranks 0, 2, 00000abc on rank 1; no checkpoint was written"));
  EXPECT_THAT(text_of({7, 2, 1, 2, 1, 9}), HasSubstr("rank 0 holds other values than the others: 'fc1.weight'"));
  EXPECT_THAT(text_of({7, 2, 1, 2, 1, 2, 1, 2, 8, 2}), HasSubstr("ranks 0, 4 hold other values"));
}

TEST(Replicas, WithoutAMajorityAllAreNamedWithTheirChecksums) {
  for (const auto& sums : {std::vector<std::uint32_t>{1, 2, 3, 2}, {1, 2, 1, 2, 3, 2, 3, 2}}) {
    EXPECT_THAT(text_of(sums), HasSubstr("no majority says whose are right: 'fc1.weight'"));
    EXPECT_THAT(text_of(sums), HasSubstr("00000003 on rank"));
    EXPECT_THAT(text_of(sums), Not(HasSubstr("than the others")));
  }
}

TEST(Replicas, OneBitOfOneElementIsSeenOnAllRanksWhereverItIs) {
  for (const std::int64_t flipped : {0, 8191, 4000}) {
    collective::run_ranks(3, [&](Communicator& comm) {
      at::Tensor weight = at::arange(8192, at::kFloat), bias = at::ones({3, 3}).transpose(0, 1), count = at::tensor(5, at::kLong);
      const nn::NamedTensors all{{"weight", weight}, {"bias", bias}, {"count", count}};
      EXPECT_FALSE(compare_replicas(comm, all, 1));
      if (comm.rank() == Rank{2}) weight.view(at::kInt)[flipped].bitwise_xor_(1 << 7);
      const auto text = compare_replicas(comm, all, 2);
      ASSERT_TRUE(text);
      EXPECT_THAT(*text, HasSubstr("after update 2 rank 2 holds other values than the others: 'weight'"));
    });
  }
}

TEST(Replicas, RanksThatDoNotHoldTheStateYetHaveNoSay) {
  collective::run_ranks(4, [&](Communicator& comm) {
    const bool newcomer = comm.rank() == Rank{3}, culprit = comm.rank() == Rank{1};
    const at::Tensor weight = newcomer ? at::zeros(64) : at::ones(64);
    EXPECT_FALSE(compare_replicas(comm, {{"weight", weight}}, 7, 3));
    EXPECT_TRUE(compare_replicas(comm, {{"weight", weight}}, 7));
    if (culprit) weight[5] = 2;
    const auto text = compare_replicas(comm, {{"weight", weight}}, 7, 3);
    ASSERT_TRUE(text);
    EXPECT_THAT(*text, HasSubstr("after update 7 rank 1 holds other values than the others: 'weight'"));
    EXPECT_THAT(*text, HasSubstr("on ranks 0, 2,"));
    EXPECT_FALSE(compare_replicas(comm, {{"weight", weight}}, 7, 1)) << "of one rank with the state there is no replica";
  });
}

TEST(Replicas, PartsOfATensorAreComparedAmongTheRanksThatHoldTheSamePart) {
  collective::run_ranks(6, [&](Communicator& comm) {
    const std::vector<std::vector<Rank>> along_dp{{Rank{0}, Rank{2}, Rank{4}}, {Rank{1}, Rank{3}, Rank{5}}};
    const at::Tensor part = at::full({64}, comm.rank().value % 2);
    EXPECT_FALSE(compare_replicas(comm, {{"fc1.weight", part}}, 3, along_dp));
    if (comm.rank() == Rank{3}) part[5] = 2;
    const auto text = compare_replicas(comm, {{"fc1.weight", part}}, 3, along_dp);
    ASSERT_TRUE(text) << "on every rank";
    EXPECT_THAT(*text, HasSubstr("after update 3 rank 3 holds other values than the others: 'fc1.weight'"));
    EXPECT_THAT(*text, HasSubstr("on ranks 1, 5,"));
  });
}

TEST(Replicas, ARankAloneHasNothingToCompare) {
  collective::run_ranks(1, [&](Communicator& comm) { EXPECT_FALSE(compare_replicas(comm, {{"w", at::ones(3)}}, 1)); });
}

}  // namespace
}  // namespace cohort::train
