#include "cohort/bench/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "cohort/base/text.h"
#include "cohort/bench/testing.h"

namespace cohort::bench {
namespace {

using testing::HasSubstr;

TEST(RunProcess, KeepsOutputErrorsAndStatus) {
  const auto o = run_process({{"sh", "-c", "echo out; echo first >&2; echo $WORD >&2; exit 7"}, {{"WORD", "last"}}}, Deadline::in(10s));
  EXPECT_EQ(o.out, "out\n");
  EXPECT_EQ(o.last_line(), "last");
  EXPECT_EQ(o.status, 7);
  EXPECT_FALSE(o.ok());
}

TEST(RunProcess, EndsALateProgramAndEverythingItStarted) {
  const auto o = run_process({{"sh", "-c", "sleep 1000 & echo $!; sleep 1000"}, {}}, Deadline::in(2s));
  EXPECT_TRUE(o.late);
  EXPECT_EQ(o.status, 128 + 15);
  const auto left_behind = static_cast<pid_t>(parse_int(trim(o.out)));
  const auto deadline = Deadline::in(5s);
  while (kill(left_behind, 0) == 0 && !deadline.passed()) std::this_thread::yield();  // init reaps it in its own time
  const auto state =
      run_process({{"sh", "-c", "grep -s State /proc/" + std::to_string(left_behind) + "/status || true"}, {}}, Deadline::in(5s)).out;
  EXPECT_TRUE(state.empty() || state.find('Z') != std::string::npos) << state;
}

TEST(RunProcess, SaysWhichProgramIsMissing) {
  EXPECT_THAT(message_of([] { run_process({{"/no/such/program"}, {}}, Deadline::in(5s)); }), HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace cohort::bench
