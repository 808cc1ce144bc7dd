#include "cohort/group/device_mesh.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort::group {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DeviceMesh, LetsTheLastAxisVaryFastest) {
  const DeviceMesh mesh(8, "pp=2, dp=2, tp=2");
  EXPECT_THAT(mesh.coordinates(Rank{0}), ElementsAre(0, 0, 0));
  EXPECT_THAT(mesh.coordinates(Rank{1}), ElementsAre(0, 0, 1));
  EXPECT_THAT(mesh.coordinates(Rank{5}), ElementsAre(1, 0, 1));
  EXPECT_EQ(mesh.coordinate(Rank{6}, "dp"), 1);
  EXPECT_EQ(mesh.text(), "pp=2,dp=2,tp=2");
  for (Rank rank{0}; rank.value < 8; ++rank.value) EXPECT_EQ(mesh.rank_at(mesh.coordinates(rank)), rank);
}

TEST(DeviceMesh, NamesTheGroupsAlongOneAndSeveralAxes) {
  const DeviceMesh mesh(8, "pp=2,dp=2,tp=2");
  EXPECT_THAT(mesh.along("tp").groups, ElementsAre(ElementsAre(Rank{0}, Rank{1}), ElementsAre(Rank{2}, Rank{3}),
                                                   ElementsAre(Rank{4}, Rank{5}), ElementsAre(Rank{6}, Rank{7})));
  EXPECT_THAT(mesh.along("dp").of(Rank{5}), ElementsAre(Rank{5}, Rank{7}));
  EXPECT_EQ(mesh.along("dp").place_of(Rank{7}), 1);
  EXPECT_THAT(mesh.span({"dp", "tp"}).of(Rank{5}), ElementsAre(Rank{4}, Rank{5}, Rank{6}, Rank{7}));
  EXPECT_THAT(mesh.span({"tp", "pp"}).of(Rank{7}), ElementsAre(Rank{2}, Rank{3}, Rank{6}, Rank{7}));
  EXPECT_EQ(mesh.span({"dp", "tp", "pp"}).groups.size(), 1u);
  EXPECT_THAT(mesh.span({}).of(Rank{3}), ElementsAre(Rank{3}));
  EXPECT_THAT(mesh.along("ep").of(Rank{3}), ElementsAre(Rank{3})) << "an axis that is not named has one place";
  EXPECT_THAT(mesh.others({"dp"}), ElementsAre("pp", "tp"));
}

// Every rank is in one group of every span, at the place it says, and the groups of an axis differ in that axis alone.
TEST(DeviceMesh, PutsEveryRankIntoOneGroup) {
  const DeviceMesh mesh(24, "dp=3,ep=2,tp=4");
  for (const auto& axes : {std::vector<std::string>{"dp"}, {"ep"}, {"tp"}, {"dp", "tp"}, {"ep", "dp"}, {"dp", "ep", "tp"}}) {
    const RankGroups all = mesh.span(axes);
    std::size_t ranks = 0;
    for (const auto& group : all.groups) {
      ranks += group.size();
      EXPECT_EQ(static_cast<int>(group.size()), all.size());
      for (const auto& other : mesh.others(axes))
        for (const Rank rank : group) EXPECT_EQ(mesh.coordinate(rank, other), mesh.coordinate(group[0], other));
    }
    EXPECT_EQ(ranks, 24u);
    for (Rank rank{0}; rank.value < 24; ++rank.value) EXPECT_EQ(all.of(rank)[static_cast<std::size_t>(all.place_of(rank))], rank);
  }
}

TEST(DeviceMesh, LeavesOneAxisWhatTheOthersLeave) {
  EXPECT_EQ(DeviceMesh(12, "dp=-1,tp=4").size("dp"), 3);
  EXPECT_EQ(DeviceMesh(12, "tp=4,dp").size("dp"), 3);
  EXPECT_EQ(DeviceMesh(12, "").text(), "dp=12");
  EXPECT_EQ(DeviceMesh(1, "dp=1,tp=1").size("tp"), 1);
  EXPECT_EQ(DeviceMesh(4).size("tp"), 1);
}

TEST(DeviceMesh, SaysWhatItCannotTake) {
  const auto refused = [](int world, const char* text) {
    const Error error = failure_of([&] { DeviceMesh(world, text); });
    EXPECT_EQ(error.kind, Kind::usage) << text;
    return error.what;
  };
  EXPECT_THAT(refused(8, "dp=2,tp=2"), HasSubstr("is of 4 ranks, and the job has 8"));
  EXPECT_THAT(refused(8, "dp=-1,tp=3"), HasSubstr("is of 3 ranks or a multiple of it, and the job has 8"));
  EXPECT_THAT(refused(8, "dp=2,tpp=4"), HasSubstr("no axis is called 'tpp', did you mean 'tp'?; there are: dp, tp, pp"));
  EXPECT_THAT(refused(8, "dp=2,dp=4"), HasSubstr("dp is there twice"));
  EXPECT_THAT(refused(8, "dp,tp"), HasSubstr("one axis alone"));
  EXPECT_THAT(refused(8, "dp=x"), HasSubstr("'x' is no number of ranks"));
  EXPECT_THAT(refused(8, "dp=0"), HasSubstr("1 rank or more"));
  EXPECT_THAT(refused(8, "dp=2,,tp=4"), HasSubstr("no axis is called ''"));
  refused(8, "dp=1000000,tp=1000000,pp=1000000,ep=1000000,cp=1000000");
}

}  // namespace
}  // namespace cohort::group
