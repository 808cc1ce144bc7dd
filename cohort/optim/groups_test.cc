#include "cohort/optim/groups.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<TensorInfo> kNet{
    {"stem.weight", {16, 3, 3, 3}}, {"stem.norm.weight", {16}}, {"stem.norm.bias", {16}}, {"body.weight", {1000, 400, 3, 1}},
    {"head.weight", {10, 1024}},    {"head.bias", {10}},        {"temperature", {}}};

TEST(Groups, TensorsOfOneDimensionAreNotDecayedUnlessAsked) {
  const Groups groups({.weight_decay = 0.05}), all({.weight_decay = 0.05, .decay_1d = true});
  for (const TensorInfo& t : kNet) {
    EXPECT_EQ(groups.of(t).weight_decay, t.ndim() > 1 ? 0.05 : 0) << t.name;
    EXPECT_EQ(all.of(t).weight_decay, 0.05) << t.name;
  }
}

TEST(Groups, NamesFreezeAndScale) {
  const Groups groups({.weight_decay = 0.1, .frozen = {"stem.*"}, .lr_scale = {{"head.bias", 20}, {"head.*", 10}, {"*", 0.5}}});
  EXPECT_EQ(groups.of(kNet[0]), (Group{.frozen = true}));
  EXPECT_EQ(groups.of(kNet[3]), (Group{.lr_scale = 0.5, .weight_decay = 0.1}));
  EXPECT_EQ(groups.of(kNet[4]), (Group{.lr_scale = 10, .weight_decay = 0.1}));
  EXPECT_EQ(groups.of(kNet[5]), (Group{.lr_scale = 20}));  // the first rule that matches
}

TEST(Groups, AnAssignmentNumbersTheDifferentGroupsAndCountsWhatIsDecayed) {
  const Assignment got = Groups({.weight_decay = 0.1, .lr_scale = {{"head.*", 10}}}).assign(kNet);
  EXPECT_THAT(got.of_tensor, ElementsAre(0, 1, 1, 0, 2, 3, 1));
  EXPECT_EQ(got.groups.size(), 4u);
  EXPECT_EQ(got.summary, "decayed 1.2 M in 3 tensors, not decayed 43 in 4");
  EXPECT_EQ(Groups({.weight_decay = 0.1, .frozen = {"body*"}}).assign(kNet).summary,
            "decayed 10.7 k in 2 tensors, not decayed 43 in 4, frozen 1.2 M in 1");
  EXPECT_EQ(Groups({}).assign(kNet).summary, "decayed 0 in 0 tensors, not decayed 1.2 M in 7");
  EXPECT_EQ(Groups({}).assign({}).summary, "decayed 0 in 0 tensors, not decayed 0 in 0");
}

TEST(Groups, APatternThatMatchesNothingIsATypingMistake) {
  const std::string what = failure_of([] { Groups({.frozen = {"haed.weight"}}).assign(kNet); }).what;
  EXPECT_THAT(what, HasSubstr("\"haed.weight\" matches none of the 7 tensors"));
  EXPECT_THAT(what, HasSubstr("head.weight"));
  EXPECT_EQ(failure_of([] { Groups({.lr_scale = {{"x*", 2}}}).assign(kNet); }).kind, Kind::usage);
}

TEST(Groups, RefusesFactorsAndDecaysThatCannotBeMeant) {
  EXPECT_THAT(failure_of([] { Groups({.lr_scale = {{"head.*", 0}}}); }).what, HasSubstr("frozen"));
  EXPECT_EQ(failure_of([] { Groups({.weight_decay = -1}); }).kind, Kind::usage);
}

TEST(Groups, RulesOfTheRateAreWrittenAsPatternAndFactor) {
  const LrScale rule = parse_lr_scale(" head.* : 10 ");
  EXPECT_EQ(rule.pattern, "head.*");
  EXPECT_EQ(rule.factor, 10);
  for (const auto* bad : {"head.*", ": 3", "head.*: fast", ""})
    EXPECT_EQ(failure_of([&] { parse_lr_scale(bad); }).kind, Kind::usage) << bad;
}

TEST(Patterns, MatchWholeNames) {
  EXPECT_TRUE(matches("head.*", "head.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**a*", "banana"));
  EXPECT_TRUE(matches("*.norm?.bias", "layer1.0.norm2.bias"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches("head", "head.weight"));
  EXPECT_FALSE(matches("head.*", "my.head.weight"));
  EXPECT_FALSE(matches("a*b*c", "aXbYbZ"));
  EXPECT_FALSE(matches("?", ""));
}

}  // namespace
}  // namespace cohort::optim
