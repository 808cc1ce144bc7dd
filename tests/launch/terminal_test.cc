// A user at a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "support.h"

namespace cohort::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Seconds kReady{20};

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST(TerminalProcess, ControlCReachesEveryRankExactlyOnce) {
  const auto job = Started::on_terminal(
      cohort_run_words({"-n", "2", "sh", "-c", "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done"}),
      {{"NO_COLOR", "1"}});
  ASSERT_TRUE(job->wait_for_text("[0] ready", kReady) && job->wait_for_text("[1] ready", kReady));
  job->type("\x03");
  const auto r = job->wait();
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(count(r.out, "caught"), 2);
  EXPECT_THAT(r.out, HasSubstr("stopped by SIGINT"));
}

TEST(TerminalProcess, WhatIsTypedGoesToRankZero) {
  const auto job =
      Started::on_terminal(cohort_run_words({"-n", "2", "sh", "-c", "[ $RANK = 1 ] && exit 0; printf 'name? '; read x; echo hello $x"}));
  ASSERT_TRUE(job->wait_for_text("name? ", kReady));
  job->type("joe\n");
  EXPECT_TRUE(job->wait_for_text("hello joe", kReady)) << job->out();
  EXPECT_EQ(job->wait().code, 0);
}

TEST(TerminalProcess, ControlZStopsTheRanksAndSigcontContinuesThem) {
  const auto job = Started::on_terminal(cohort_run_words({"-n", "1", "sh", "-c", "echo ready; while :; do sleep 0.02; echo tick; done"}));
  ASSERT_TRUE(job->wait_for_text("tick", kReady));
  job->type("\x1a");
  ASSERT_TRUE(job->wait_for_state('T', kReady));
  job->signal(SIGCONT);
  const int before = count(job->out(), "tick");
  while (count(job->out(), "tick") < before + 3) ASSERT_TRUE(job->wait_for_more(kReady));
  job->type("\x03");
  EXPECT_EQ(job->wait().code, 128 + SIGINT);
}

TEST(TerminalProcess, PrefixesAreColouredUnlessNoColorIsSet) {
  const Words words = cohort_run_words({"echo", "hi"});
  EXPECT_THAT(Started::on_terminal(words, {{"TERM", "xterm"}})->wait().out, HasSubstr("\033[36m[0]\033[0m hi"));
  EXPECT_THAT(Started::on_terminal(words, {{"TERM", "xterm"}, {"NO_COLOR", "1"}})->wait().out, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace cohort::launch
