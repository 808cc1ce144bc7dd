#include "cohort/elastic/history.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Event = HistoryLine::Event;

constexpr int kRanks = 2;
constexpr std::int64_t kSamples = 8;  // a step takes 4: two steps an epoch of the data

HistoryLine commit(std::int64_t step, int rank, std::uint32_t epoch = 1) {
  const std::int64_t first = (step - 1) % 2 * 4;
  return {.event = Event::commit,
          .epoch = Epoch{epoch},
          .step = step,
          .rank = Rank{rank},
          .worker = fmt::format("w{}", rank),
          .size = kRanks,
          .hash = fmt::format("h{}", step),
          .data_epoch = (step - 1) / 2,
          .first = first,
          .total = 4,
          .of = kSamples,
          .samples = {first + 2 * rank, first + 2 * rank + 1}};
}

HistoryLine other(Event event, std::int64_t step, const std::string& worker, std::uint32_t epoch, std::string hash = "") {
  return {.event = event, .epoch = Epoch{epoch}, .step = step, .rank = Rank{0}, .worker = worker, .size = kRanks, .hash = std::move(hash)};
}

// Steps 1 to 6 of two ranks without any fault: two lines a step, rank 0's first.
std::vector<HistoryLine> undisturbed() {
  std::vector<HistoryLine> lines;
  for (std::int64_t step = 1; step <= 6; ++step)
    for (int rank = 0; rank < kRanks; ++rank) lines.push_back(commit(step, rank));
  return lines;
}

std::string verdict(const std::vector<HistoryLine>& lines) {
  std::string text;
  for (const Violation& v : judge(lines)) text += fmt::format("{}: {}\n", v.promise, v.what);
  return text;
}

TEST(History, AnUndisturbedRunBreaksNoPromise) { EXPECT_EQ(verdict(undisturbed()), ""); }

TEST(History, ALostRankMayLackItsLinesAndTheNextEpochGoesOn) {
  auto lines = undisturbed();
  lines.resize(5);  // rank 1 died after its vote for step 3
  for (std::int64_t step = 4; step <= 6; ++step) {
    lines.push_back(other(Event::start, step, "w0", 2));
    lines.push_back(commit(step, 0, 2));
    lines.back().size = 1;
    const std::int64_t first = (step - 1) % 2 * 4;
    lines.back().samples = {first, first + 1, first + 2, first + 3};
  }
  EXPECT_EQ(verdict(lines), "");
}

TEST(History, P1SeesALostStep) {
  auto lines = undisturbed();
  std::erase_if(lines, [](const HistoryLine& l) { return l.step == 4; });
  EXPECT_THAT(verdict(lines), HasSubstr("P1: step 5 follows step 3: those between were lost"));
}

TEST(History, P1SeesAStepAppliedTwiceOrLeftOutByOneWorker) {
  auto twice = undisturbed();
  twice.push_back(commit(6, 0));
  EXPECT_THAT(verdict(twice), HasSubstr("P1: worker w0 applied step 6 (membership epoch 1) again, after step 6"));
  auto left_out = undisturbed();
  left_out.erase(left_out.begin() + 5);  // rank 1's step 3
  EXPECT_THAT(verdict(left_out), HasSubstr("P1: worker w1 applied step 4 (membership epoch 1) after step 2: it skipped some"));
}

TEST(History, P1AllowsOneStepInVainAndNotTwo) {
  auto lines = undisturbed();
  lines.push_back(other(Event::start, 7, "w0", 1));
  EXPECT_EQ(verdict(lines), "");
  lines.push_back(other(Event::start, 8, "w0", 1));
  EXPECT_THAT(verdict(lines), HasSubstr("P1: membership epoch 1 computed 2 steps in vain, from step 7 on"));
}

TEST(History, P2SeesParametersThatDiffer) {
  auto lines = undisturbed();
  lines[7].hash = "other";
  EXPECT_THAT(verdict(lines), HasSubstr("P2: after step 4 of membership epoch 1 rank 0 has parameters h4 and rank 1 has other"));
}

TEST(History, P2SeesANewcomerThatReceivedTheWrongState) {
  auto lines = undisturbed();
  lines.push_back(other(Event::heal, 6, "new", 2, "h6"));
  EXPECT_EQ(verdict(lines), "");
  lines.push_back(other(Event::heal, 6, "newer", 2, "h5"));
  EXPECT_THAT(verdict(lines), HasSubstr("P2: rank 0 of membership epoch 2 received parameters h5 after step 6, which are h6"));
}

TEST(History, P3SeesASampleTakenTwice) {
  auto lines = undisturbed();
  lines[3].samples[0] = 0;
  EXPECT_THAT(verdict(lines), HasSubstr("P3: sample 0 was taken at step 1 and again at step 2 by rank 1"));
}

TEST(History, P3SeesSamplesLeftOut) {
  auto few = undisturbed();
  few[3].samples.pop_back();
  EXPECT_THAT(verdict(few), HasSubstr("P3: step 2 took 4 samples, its ranks 3 in total"));
  auto gap = undisturbed();
  for (HistoryLine& l : gap)
    if (l.step == 2) l.first = 5;
  EXPECT_THAT(verdict(gap), HasSubstr("P3: step 2 takes samples from position 5 of data epoch 0 on; 4 were taken before"));
  auto early = undisturbed();
  std::erase_if(early, [](const HistoryLine& l) { return l.step > 3; });
  for (HistoryLine& l : early)
    if (l.step > 1) {
      l.data_epoch = 1;
      l.first = l.step == 2 ? 0 : 4;
    }
  EXPECT_THAT(verdict(early), HasSubstr("P3: epoch 0 of the data was left after 4 of 8 samples for epoch 1, at step 2"));
}

TEST(History, P3SeesRanksThatDisagreeAndSamplesThatDoNotExist) {
  auto lines = undisturbed();
  lines[1].first = 1;
  EXPECT_THAT(verdict(lines), HasSubstr("P3: at step 1 ranks 0 and 1 do not agree"));
  lines = undisturbed();
  lines[1].samples[0] = 99;
  EXPECT_THAT(verdict(lines), HasSubstr("sample 99 of 8 does not exist"));
}

TEST(History, P6SeesAStepThatTwoEpochsCommitted) {
  auto lines = undisturbed();
  lines[9].epoch = Epoch{2};
  EXPECT_THAT(verdict(lines), HasSubstr("P6: step 5 was committed by membership epoch 1 and again by membership epoch 2"));
}

TEST(History, P6SeesAnOldEpochThatGoesOn) {
  auto lines = undisturbed();
  for (HistoryLine& l : lines)
    if (l.step == 5) l.epoch = Epoch{2};
  EXPECT_THAT(verdict(lines), HasSubstr("P6: step 6 was committed by membership epoch 1, after a step before it by membership epoch 2"));
}

TEST(History, P6SeesARankThatTwoWorkersClaim) {
  auto lines = undisturbed();
  lines.push_back(commit(6, 1));
  lines.back().worker = "second";
  lines.push_back(other(Event::heal, 5, "second", 1));
  std::swap(lines[lines.size() - 2], lines.back());
  EXPECT_THAT(verdict(lines), HasSubstr("P6: membership epoch 1 has two that committed step 6 as rank 1"));
}

TEST(History, ARestartFromDiskVoidsTheStepsBehindIt) {
  auto lines = undisturbed();
  for (int rank = 0; rank < kRanks; ++rank) {
    lines.push_back(other(rank == 0 ? Event::restart : Event::heal, 4, fmt::format("n{}", rank), 2, "h4"));
    for (std::int64_t step = 5; step <= 6; ++step) {
      lines.push_back(commit(step, rank, 2));
      lines.back().worker = fmt::format("n{}", rank);
      lines.back().hash = "another";
    }
  }
  EXPECT_EQ(verdict(lines), "");
  std::erase_if(lines, [](const HistoryLine& l) { return l.event == Event::restart; });
  EXPECT_THAT(verdict(lines), HasSubstr("P6: step 5 was committed by membership epoch 1 and again by membership epoch 2"));
}

TEST(History, StepsBehindARestartDoNotCountWhereTheJobDidNotComeAsFarAgain) {
  auto lines = undisturbed();
  for (int rank = 0; rank < kRanks; ++rank) {
    lines.push_back(other(rank == 0 ? Event::restart : Event::heal, 2, fmt::format("n{}", rank), 2, "h2"));
    lines.push_back(commit(3, rank, 2));
    lines.back().worker = fmt::format("n{}", rank);
    lines.back().total = kSamples;  // the whole of an epoch of the data at once: the old step 4 took the second half of it
    lines.back().samples = {4 * rank, 4 * rank + 1, 4 * rank + 2, 4 * rank + 3};
  }
  EXPECT_EQ(verdict(lines), "");
  std::erase_if(lines, [](const HistoryLine& l) { return l.event == Event::restart; });
  EXPECT_THAT(verdict(lines), HasSubstr("P3: "));
}

TEST(History, LinesAreDecodedAsTheyWereEncoded) {
  std::string text;
  auto lines = undisturbed();
  lines.push_back(other(Event::restart, 3, "w\"\n", 9, "h"));
  for (const HistoryLine& line : lines) text += encode_line(line) + "\n";
  EXPECT_EQ(decode_history(text, "h.jsonl"), lines);
  EXPECT_EQ(decode_history(text + R"({"event":"com)", "h.jsonl"), lines) << "a killed process's last line";
}

TEST(History, RefusesLinesThatAreNoHistory) {
  for (const char* text :
       {"{}", "[1]", "null", "{\"event\":\"dance\"}", R"({"event":"commit","step":-1})", R"({"event":"commit","step":1e9})",
        R"({"event":"commit","epoch":4294967296})", R"({"event":"commit","samples":[[[[1]]]]})", R"({"event":"commit","samples":3})",
        R"({"event":"commit","hash":3})", R"({"event":"commit","step":18446744073709551615})"})
    EXPECT_EQ(failure_of([&] { decode_line(text); }).kind, Kind::corrupt) << text;
  EXPECT_THAT(failure_of([] { decode_history("\nnonsense\n", "h.jsonl"); }).what, HasSubstr("h.jsonl, line 2"));
}

}  // namespace
}  // namespace cohort::elastic
