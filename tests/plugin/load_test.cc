// Libraries that are loaded several times by one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/nn/plugin.h"

namespace cohort::nn {
namespace {

using testing::HasSubstr;

TEST(LoadPlugins, ARefusedOneIsRefusedAgain) {
  const std::vector<std::string> taken{PLUGIN_TAKEN};
  for (int i = 0; i < 2; ++i) {
    const Error error = failure_of([&] { load_plugins(taken); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("there is a model 'mlp' already")) << "time " << i;
  }
}

TEST(LoadPlugins, ALoadedOneIsTakenAgain) {
  const std::vector<std::string> mine{PLUGIN_MINE};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(failure_of([&] { load_plugins(mine); }).what, "(it did not fail)");
}

}  // namespace
}  // namespace cohort::nn
