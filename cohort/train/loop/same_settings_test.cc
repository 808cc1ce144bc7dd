#include "cohort/train/loop/same_settings.h"

#include <gmock/gmock.h>

#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::train {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSettings = "model: \"mlp\"\ndata:\n  batch: 32\n  train: \"synthetic\"\noptim:\n  schedule: \"constant\"\n";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kSettings;
  return text.replace(text.find(from), from.size(), to);
}

TEST(SameSettings, NamesTheSettingByItsWholeNameWithBothValues) {
  EXPECT_EQ(difference_of_settings(kSettings, kSettings, 1), "");
  EXPECT_EQ(difference_of_settings(kSettings, with("batch: 32", "batch: 64"), 3), "data.batch is 32 on rank 0 but 64 on rank 3");
  EXPECT_EQ(difference_of_settings(kSettings, with("  schedule: \"constant\"\n", ""), 1),
            "optim.schedule is \"constant\" on rank 0 but not set on rank 1");
  EXPECT_EQ(difference_of_settings(with("  schedule: \"constant\"\n", ""), kSettings, 1),
            "optim.schedule is not set on rank 0 but \"constant\" on rank 1");
}

TEST(SameSettings, ARankThatDiffersIsNamedOnAllOfThem) {
  auto links = net::loopback_world(3);
  std::vector<std::string> errors(3);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      const auto comm = collective::open(std::move(links[r]), {.timeout = Seconds{20}});
      check_same_settings(*comm, kSettings);
      errors[r] = failure_of([&] { check_same_settings(*comm, r == 2 ? with("32", "33") : kSettings); }).what;
      comm->barrier();  // the communicator still works
    });
  for (auto& rank : ranks) rank.join();
  for (const auto& each : errors) EXPECT_THAT(each, HasSubstr("data.batch is 32 on rank 0 but 33 on rank 2"));
}

}  // namespace
}  // namespace cohort::train
