#include "cohort/base/shard_spec.h"

#include <gmock/gmock.h>

#include <map>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ShardSpec, CutsADimensionIntoEqualParts) {
  const ShardSpec half = cut_evenly("fc1.weight", {6, 4}, 0, 1, 2);
  EXPECT_EQ(half.box, (Box{{3, 0}, {3, 4}}));
  EXPECT_FALSE(half.is_whole());
  EXPECT_EQ(to_text(half.box), "3:6, 0:4");
  EXPECT_EQ(cut_evenly("w", {6, 4}, 1, 3, 4).box, (Box{{0, 3}, {6, 1}}));
  EXPECT_TRUE(cut_evenly("w", {6, 4}, 1, 0, 1).is_whole());
}

TEST(ShardSpec, RefusesACutThatIsNotEven) {
  const Error error = failure_of([] { cut_evenly("fc1.weight", {6, 4}, 0, 0, 4); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, HasSubstr("fc1.weight of [6, 4] cannot be cut into 4 equal parts: its dimension 0 is 6"));
}

TEST(Boxes, KnowWhetherTheyLieInTheirTensor) {
  EXPECT_TRUE(is_inside({{1, 0}, {2, 4}}, {3, 4}));
  EXPECT_TRUE(is_inside({{}, {}}, {}));
  EXPECT_FALSE(is_inside({{2, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(is_inside({{-1, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(is_inside({{0}, {3}}, {3, 4}));
  EXPECT_FALSE(is_inside({{1, 0}, {std::numeric_limits<std::int64_t>::max(), 4}}, {3, 4}));
}

TEST(CommonRuns, AreAsLongAsBothLayoutsAllow) {
  const Box whole = whole_box({4, 6});
  EXPECT_THAT(common_runs(whole, whole), ElementsAre(CommonRun{0, 0, 24}));
  EXPECT_THAT(common_runs(whole, {{2, 0}, {2, 6}}), ElementsAre(CommonRun{12, 0, 12})) << "rows are contiguous in both";
  EXPECT_THAT(common_runs(whole, {{0, 3}, {2, 3}}), ElementsAre(CommonRun{3, 0, 3}, CommonRun{9, 3, 3}));
  EXPECT_THAT(common_runs({{0, 0}, {4, 3}}, {{1, 1}, {2, 5}}), ElementsAre(CommonRun{4, 0, 2}, CommonRun{7, 5, 2}));
  EXPECT_THAT(common_runs({{0, 0}, {2, 6}}, {{2, 0}, {2, 6}}), ElementsAre());
  EXPECT_THAT(common_runs(whole_box({}), whole_box({})), ElementsAre(CommonRun{0, 0, 1})) << "a scalar";
}

// Every element of the tensor is numbered; copying by the runs must bring each number to its place.
TEST(CommonRuns, BringEveryElementToItsPlaceWhateverBoxesAndRuns) {
  const Shape shape{3, 4, 5};
  const auto numbers_of = [&](const Box& box) {
    std::vector<std::int64_t> all;
    for (auto i = box.first[0]; i < box.first[0] + box.sizes[0]; ++i)
      for (auto j = box.first[1]; j < box.first[1] + box.sizes[1]; ++j)
        for (auto k = box.first[2]; k < box.first[2] + box.sizes[2]; ++k) all.push_back((i * 4 + j) * 5 + k);
    return all;
  };
  const std::vector<Box> boxes{
      whole_box(shape), {{1, 0, 0}, {2, 4, 5}}, {{0, 1, 0}, {3, 2, 5}}, {{0, 0, 2}, {3, 4, 2}}, {{1, 1, 1}, {1, 3, 3}}};
  for (const Box& a : boxes)
    for (const Box& b : boxes) {
      const auto of_a = numbers_of(a), of_b = numbers_of(b);
      for (const ElementRange& run_a : {ElementRange{0, of_a.size()}, ElementRange{3, of_a.size() - 5}})
        for (const ElementRange& run_b : {ElementRange{0, of_b.size()}, ElementRange{2, of_b.size() / 2}}) {
          std::size_t expected = 0, moved = 0;
          for (auto i = run_b.first; i < run_b.last(); ++i) {
            const auto found = std::find(of_a.begin(), of_a.end(), of_b[i]) - of_a.begin();
            expected += static_cast<std::size_t>(found) >= run_a.first && static_cast<std::size_t>(found) < run_a.last() ? 1 : 0;
          }
          for (const CommonRun& run : common_runs(a, run_a, b, run_b))
            for (std::size_t i = 0; i < run.count; ++i, ++moved) EXPECT_EQ(of_a[run.in_a + i], of_b[run.in_b + i]);
          EXPECT_EQ(moved, expected) << to_text(a) << " and " << to_text(b);
        }
    }
}

}  // namespace
}  // namespace cohort
