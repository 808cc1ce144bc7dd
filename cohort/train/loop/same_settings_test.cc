#include "cohort/train/loop/same_settings.h"

#include <gmock/gmock.h>

#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/net/loopback.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSettings = "model: \"mlp\"\ndata:\n  batch: 32\n  train: \"synthetic\"\noptim:\n  rule: \"sgd\"\n";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kSettings;
  return text.replace(text.find(from), from.size(), to);
}

TEST(SameSettings, NamesTheSettingByItsWholeNameWithBothValues) {
  EXPECT_EQ(difference_of_settings(kSettings, kSettings, 1), "");
  EXPECT_EQ(difference_of_settings(kSettings, with("batch: 32", "batch: 64"), 3), "data.batch is 32 on rank 0 but 64 on rank 3");
  EXPECT_EQ(difference_of_settings(kSettings, with("  rule: \"sgd\"\n", ""), 1), "optim.rule is \"sgd\" on rank 0 but not set on rank 1");
  EXPECT_EQ(difference_of_settings(with("  rule: \"sgd\"\n", ""), kSettings, 1), "optim.rule is not set on rank 0 but \"sgd\" on rank 1");
}

TEST(SameSettings, ARankThatDiffersIsNamedOnAllOfThem) {
  auto meshes = net::loopback_meshes(3);
  std::vector<std::string> told(3);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      const auto comm = collective::open(std::move(meshes[r]), {.timeout = Seconds{20}});
      check_same_settings(*comm, kSettings);
      told[r] = failure_of([&] { check_same_settings(*comm, r == 2 ? with("32", "33") : kSettings); }).what;
      comm->barrier();  // still of use
    });
  for (auto& rank : ranks) rank.join();
  for (const auto& each : told) EXPECT_THAT(each, HasSubstr("data.batch is 32 on rank 0 but 33 on rank 2"));
}

}  // namespace
}  // namespace cohort
