#include "cohort/launch/remote_ranks.h"

#include <gtest/gtest.h>

#include <csignal>

#include "cohort/base/error.h"
#include "cohort/base/no_descriptors.h"

namespace cohort::launch {
namespace {

class NoOutput : public RankSink {
 public:
  void write(int, int, std::string_view, Clock::time_point) override {}
  void finish(int, int) override {}
};

TEST(RemoteRanks, AnAgentThatCannotBeStartedLeavesNoWorkerBehind) {
  NoOutput sink;
  RemoteRanks ranks(sink);
  RemotePlan plan;
  plan.elastic = true;
  plan.pool = {{"one", 1}, {"two", 1}};
  plan.hosts = {{"one", 0, 1}};
  plan.shell = [](const std::string&) -> std::vector<std::string> { return {"/bin/sleep", "1000"}; };
  ranks.start(std::move(plan));
  {
    const NoDescriptors none;
    EXPECT_THROW(ranks.add(), Failure);
  }
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_TRUE(ranks.has_free_slot());
  EXPECT_EQ(ranks.add(), 1);
  EXPECT_EQ(ranks[1].host, "two");
  ranks.signal(SIGKILL);
}

}  // namespace
}  // namespace cohort::launch
