#include "cohort/plan/recompute_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<BlockBytes> kBlocks{{"embed", 100, 100}, {"h.0", 1000, 100}, {"h.1", 3000, 100}, {"h.2", 2000, 100}, {"head", 50, 50}};

std::vector<bool> chosen(const std::string& text) { return choose(RecomputeChoice::parse(text), kBlocks); }

TEST(RecomputeChoice, SaysWhichBlocks) {
  EXPECT_THAT(chosen("none"), ElementsAre(false, false, false, false, false));
  EXPECT_THAT(chosen("every(1)"), ElementsAre(true, true, true, true, true));
  EXPECT_THAT(chosen("every( 2 )"), ElementsAre(false, true, false, true, false));
  EXPECT_THAT(chosen("names(h.2, embed)"), ElementsAre(true, false, false, true, false));
}

TEST(RecomputeChoice, CountsWhatIsKeptAndTheLargestBlockThatComesBack) {
  EXPECT_EQ(activation_peak(kBlocks, chosen("none")), 6150U);
  EXPECT_EQ(activation_peak(kBlocks, chosen("names(h.1)")), 6150U) << "alone it is back when backward begins with it";
  EXPECT_EQ(activation_peak(kBlocks, chosen("names(h.1, h.2)")), 6150U - 1900);
  EXPECT_EQ(activation_peak(kBlocks, chosen("every(1)")), 450U + 2900);
}

TEST(RecomputeChoice, TakesAsFewBlocksAsFit) {
  EXPECT_THAT(chosen("until_fits(6150)"), ElementsAre(false, false, false, false, false));
  EXPECT_THAT(chosen("until_fits(6149)"), ElementsAre(false, false, true, true, false));
  EXPECT_THAT(chosen("until_fits(4250)"), ElementsAre(false, false, true, true, false));
  EXPECT_THAT(chosen("until_fits(4249)"), ElementsAre(false, true, true, true, false));
  EXPECT_THAT(failure_of([] { chosen("until_fits(3000)"); }).what, HasSubstr("at least; take smaller batches"));
}

TEST(RecomputeChoice, RefusesWhatItCannotRead) {
  for (const char* bad :
       {"", "all", "every", "every()", "every(0)", "every(2", "every(two)", "names(a,)", "none()", "until_fits()", "every(2) x"})
    EXPECT_THAT(failure_of([&] { RecomputeChoice::parse(bad); }).what, HasSubstr("is none of none, every(2)")) << bad;
  EXPECT_EQ(failure_of([] { RecomputeChoice::parse("until_fits(many)"); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([] { chosen("names(h.9)"); }).what, HasSubstr("no block 'h.9'; its blocks are embed, h.0"));
}

}  // namespace
}  // namespace cohort
