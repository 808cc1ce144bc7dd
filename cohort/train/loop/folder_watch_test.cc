#include "cohort/train/loop/folder_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "cohort/base/slowdown.h"

namespace cohort::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(FolderWatch, SaysOfALookThatDoesNotReturnWhatIsWaitedForAndWhoWaits) {
  std::promise<std::string> told;
  FolderWatch watch("/mnt/run", {.limit = Seconds{0.01}, .tell = [&](const std::string& text) { told.set_value(text); }});
  const auto look = watch.look();
  auto text = told.get_future();
  ASSERT_EQ(text.wait_for(20s * slowdown()), std::future_status::ready);
  EXPECT_THAT(text.get(),
              AllOf(HasSubstr("/mnt/run has not answered for"), HasSubstr("other ranks for rank 0"), HasSubstr("COHORT_TIMEOUT")));
}

TEST(FolderWatch, CountsEveryLookFromItsOwnBeginning) {
  constexpr Seconds kLimit{0.3};
  std::promise<Clock::time_point> told;
  FolderWatch watch("/mnt/run", {.limit = kLimit, .tell = [&](const std::string&) { told.set_value(Clock::now()); }});
  { const auto returns = watch.look(); }
  const auto begun = Clock::now();
  const auto look = watch.look();
  auto at = told.get_future();
  ASSERT_EQ(at.wait_for(20s * slowdown()), std::future_status::ready);
  EXPECT_GE(at.get() - begun, kLimit);
}

TEST(FolderWatch, BeginsAnewWhenTheFolderHasAnswered) {
  std::promise<void> first, second;
  std::atomic<int> times = 0;
  FolderWatch watch("/mnt/run", {.limit = Seconds{0.01}, .tell = [&](const std::string&) {
                                   const int time = ++times;
                                   if (time < 3) (time == 1 ? first : second).set_value();
                                 }});
  const auto look = watch.look();
  ASSERT_EQ(first.get_future().wait_for(20s * slowdown()), std::future_status::ready);
  watch.answered();  // and then it is silent again
  ASSERT_EQ(second.get_future().wait_for(20s * slowdown()), std::future_status::ready);
}

}  // namespace
}  // namespace cohort::train
