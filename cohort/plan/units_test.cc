#include "cohort/plan/units.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort::plan {
namespace {

TEST(Units, LinksAreBitsOrBytes) {
  EXPECT_DOUBLE_EQ(parse_link("100Gbit"), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_link("10 Gbit/s"), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_link("1.2GB/s"), 1.2e9);
}

TEST(Units, OperationsAndMemory) {
  EXPECT_DOUBLE_EQ(parse_flops("312T"), 312e12);
  EXPECT_DOUBLE_EQ(parse_flops("19.5TFLOPS"), 19.5e12);
  EXPECT_DOUBLE_EQ(parse_flops("5e12"), 5e12);
  EXPECT_DOUBLE_EQ(parse_membw("3.35TB"), 3.35e12);
}

TEST(Units, WhatIsNoSpeedIsRefusedWithAnExample) {
  for (const char* text : {"100", "fast", "-1Gbit", "0Gbit", "Gbit", ""})
    EXPECT_THAT(failure_of([&] { parse_link(text); }).what, testing::HasSubstr("100Gbit")) << text;
  EXPECT_THAT(failure_of([] { parse_flops("0"); }).what, testing::HasSubstr("312T"));
  EXPECT_THAT(failure_of([] { parse_membw("40G"); }).what, testing::HasSubstr("40GB"));
}

}  // namespace
}  // namespace cohort::plan
