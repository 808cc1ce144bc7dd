#include "cohort/train/loop/emergency_save.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(SurvivorState, ComesBackBitForBit) {
  SurvivorState mine{12, true, {false, 0.1 + 0.2, {true, false, true}, {0.1, 1e-310, INFINITY}}};
  mine.decision.loss = 0.1 + 0.7;
  const SurvivorState read = parse_survivor_state(format_survivor_state(mine), "rank-00001.json");
  EXPECT_EQ(read.step, 12);
  EXPECT_TRUE(read.undecided);
  EXPECT_FALSE(read.decision.committed);
  EXPECT_EQ(read.decision.clip, 0.1 + 0.2);
  EXPECT_EQ(read.decision.missing, mine.decision.missing);
  EXPECT_EQ(read.decision.sums, mine.decision.sums);
  EXPECT_EQ(read.decision.loss, 0.1 + 0.7);
  EXPECT_THAT(failure_of([] { parse_survivor_state("{}", "rank-00001.json"); }).what, HasSubstr("rank-00001.json"));
}

TEST(SurvivorState, OfTheFurthestIsFollowedByThoseWithoutTheResultOfTheVote) {
  const std::vector<SurvivorState> all{{5, false, {}}, {6, false, {true, 0.5, {}}}, {5, true, {}}};
  EXPECT_THAT(failure_of([&] { furthest(all); }).what, HasSubstr("another is at 5")) << "the first had not come to the vote";
  const SurvivorState end = furthest(std::span(all).subspan(1));
  EXPECT_EQ(end.step, 6);
  EXPECT_EQ(end.decision.clip, 0.5);
  EXPECT_EQ(furthest(std::span(all).subspan(2)).step, 5) << "no survivor knows the result: the step is made again";
}

TEST(EmergencySave, MeetsInNoFolderThatALinkLeadsTo) {
  const TempDir dir, elsewhere;
  const std::string folder = dir.file("checkpoints");
  fs::create_directory(folder);
  fs::create_directory_symlink(elsewhere.path(), folder + "/.rescue-7");
  const auto error = failure_of([&] { EmergencySave({0, 2, 1}, folder, 1, 7); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr(folder + "/.rescue-7 is a symbolic link"));
  new_rendezvous(folder, 1);
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder + "/.rescue-7"))) << "of an earlier start: removed";
  fs::rename(folder, dir.file("moved"));
  fs::create_directory_symlink(elsewhere.path(), folder);
  EXPECT_EQ(failure_of([&] { EmergencySave({0, 2, 1}, folder, 1, 7); }).kind, Kind::corrupt);
  EXPECT_NO_THROW(new_rendezvous(folder, 1));
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
}

}  // namespace
}  // namespace cohort::train
