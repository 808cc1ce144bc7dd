#include "cohort/base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/base/fd.h"
#include "cohort/base/log_worker.h"

namespace cohort {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class Log : public testing::Test {
 protected:
  ~Log() override {
    set_log_level(Level::info);
    set_log_rank(kNoRank);
  }
  template <class Act>
  static std::string captured(Act act) {
    testing::internal::CaptureStderr();
    act();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, WritesOneLineWithTimeLevelAndText) {
  const auto out = captured([] { log_warning("slow by {} %", 7); });
  EXPECT_THAT(out, ContainsRegex("^[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9]+ warning: slow by 7 %\n$"));
}

TEST_F(Log, NamesTheRankOnceItIsKnown) {
  const auto out = captured([] {
    set_log_rank(Rank{3});
    log_info("here");
  });
  EXPECT_THAT(out, HasSubstr(" rank 3 info: here\n"));
}

TEST_F(Log, NamesAWorkerByItsNumberAndTheRankThatItHas) {
  const auto out = captured([] {
    set_log_worker(2, kNoRank);
    log_info("joins");
    set_log_worker(2, Rank{0});
    log_info("here");
  });
  EXPECT_THAT(out, HasSubstr(" worker 2 info: joins\n"));
  EXPECT_THAT(out, HasSubstr(" worker 2 (rank 0) info: here\n"));
}

TEST_F(Log, OneProcessOfAJobSaysWhatAllFind) {
  captured([] {
    EXPECT_TRUE(logs_for_job());
    for (const int rank : {0, 1}) {
      set_log_rank(Rank{rank});
      EXPECT_EQ(logs_for_job(), rank == 0);
      set_log_worker(rank, kNoRank);
      EXPECT_EQ(logs_for_job(), rank == 0);
      set_log_worker(1 - rank, Rank{rank});
      EXPECT_EQ(logs_for_job(), rank == 0);
    }
  });
}

TEST_F(Log, LinesBelowTheLevelAreNotEvenFormatted) {
  const auto out = captured([] {
    log_debug("hidden");
    set_log_level("debug");
    log_debug("shown");
    set_log_level("off");
    log_error("silent");
  });
  EXPECT_THAT(out, HasSubstr("debug: shown"));
  EXPECT_THAT(out, Not(HasSubstr("hidden")));
  EXPECT_THAT(out, Not(HasSubstr("silent")));
}

TEST_F(Log, LevelsGoByName) {
  set_log_level("warn");
  EXPECT_FALSE(log_enabled(Level::info));
  EXPECT_TRUE(log_enabled(Level::warning));
  EXPECT_FALSE(log_enabled(Level::off));
  EXPECT_THAT(failure_of([] { set_log_level("inof"); }).what, HasSubstr("did you mean 'info'?"));
}

TEST_F(Log, TextFromOutsideCanNeitherDriveTheTerminalNorFakeALine) {
  const auto out = captured([] { log_info("peer said {}", "\x1b[2Jhi\n00:00:00.000 error: fake"); });
  EXPECT_THAT(out, HasSubstr("\\x1b[2Jhi\n    00:00:00.000 error: fake\n"));
}

TEST_F(Log, BracesInAFinishedTextAreText) {
  EXPECT_THAT(captured([] { log_line(Level::info, "{} {0} {bad"); }), HasSubstr("info: {} {0} {bad\n"));
}

TEST_F(Log, ThreadsDoNotMixTheirLines) {
  const auto out = captured([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 50; ++i) log_info("thread {} says {}", t, std::string(50, 'x'));
      });
    for (auto& thread : threads) thread.join();
  });
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = out.find(" says " + std::string(50, 'x') + "\n", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 200U);
}

TEST_F(Log, ColourNeedsATerminalAndNoNoColor) {
  const Fd terminal{posix_openpt(O_RDWR | O_NOCTTY)};
  ASSERT_TRUE(terminal);
  const char* before = std::getenv("NO_COLOR");
  const std::string kept = before == nullptr ? "" : before;
  unsetenv("NO_COLOR");
  EXPECT_TRUE(color_wanted(terminal.get()));
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(color_wanted(terminal.get())) << "an empty value counts as unset";
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(color_wanted(terminal.get()));
  unsetenv("NO_COLOR");
  const Fd file{open("/dev/null", O_WRONLY)};
  EXPECT_FALSE(color_wanted(file.get()));
  if (before != nullptr) setenv("NO_COLOR", kept.c_str(), 1);
}

}  // namespace
}  // namespace cohort
