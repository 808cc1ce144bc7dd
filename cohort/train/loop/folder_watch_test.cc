#include "cohort/train/loop/folder_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(text.get(), AllOf(HasSubstr("/mnt/run has not answered for"), HasSubstr("other ranks for rank 0"), HasSubstr("COHORT_TIMEOUT")));
}

TEST(FolderWatch, SaysNothingOfLooksThatReturn) {
  int told = 0;
  {
    FolderWatch watch("/mnt/run", {.limit = Seconds{1000}, .tell = [&](const std::string&) { ++told; }});
    for (int k = 0; k < 1000; ++k) const auto look = watch.look();
  }
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace cohort::train
