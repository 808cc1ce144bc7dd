#include "cohort/launch/memory_kills.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "cohort/base/file.h"
#include "cohort/launch/agent_messages.h"
#include "cohort/launch/failure_report.h"

namespace cohort::launch {
namespace {

using testing::HasSubstr;

TEST(MemoryKills, ExplainAsManyKilledChildrenAsTheKernelHasCounted) {
  const TempDir dir;
  const auto path = dir.file("vmstat");
  const auto counted = [&](int n) { std::ofstream(path) << "nr_free_pages 7\noom_kill " << n << "\noom_killer 9\n"; };
  counted(3);
  MemoryKills kills(path);
  EXPECT_FALSE(kills.explains(SIGKILL)) << "three were killed before";
  counted(5);
  EXPECT_FALSE(kills.explains(SIGSEGV));
  EXPECT_FALSE(kills.explains(137 << 8)) << "an exit status";
  EXPECT_TRUE(kills.explains(SIGKILL));
  EXPECT_TRUE(kills.explains(SIGKILL));
  EXPECT_FALSE(kills.explains(SIGKILL)) << "somebody else killed it";
}

TEST(MemoryKills, AKernelWithoutTheCountExplainsNothing) {
  const TempDir dir;
  EXPECT_FALSE(MemoryKills(dir.file("none")).explains(SIGKILL));
  std::ofstream(dir.file("vmstat")) << "nr_free_pages 7\n";
  EXPECT_FALSE(MemoryKills(dir.file("vmstat")).explains(SIGKILL));
}

TEST(MemoryKills, AreToldOnThisHostAndOnOthers) {
  const auto told = describe_end(SIGKILL, true);
  EXPECT_THAT(told, HasSubstr("killed by SIGKILL"));
  EXPECT_THAT(told, HasSubstr("for want of memory"));
  EXPECT_THAT(told, HasSubstr("cohort plan"));
  EXPECT_EQ(describe_end(SIGKILL, false), describe_status(SIGKILL));
  EXPECT_THAT(failure_text({.rank = 2, .pid = 7, .status = SIGKILL, .how = told}), HasSubstr("rank 2 failed first: " + told));
  for (const bool memory : {true, false}) {
    const AgentEnded ended = decode_ended(encode(AgentEnded{3, SIGKILL, memory}));
    EXPECT_EQ(ended.status, SIGKILL);
    EXPECT_EQ(ended.for_memory, memory);
  }
}

}  // namespace
}  // namespace cohort::launch
