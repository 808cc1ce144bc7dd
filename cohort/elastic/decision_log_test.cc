#include "cohort/elastic/decision_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

Worker worker(int rank, std::uint64_t id) { return {WorkerId{id}, {Rank{rank}, "127.0.0.1:100", 1000 + rank, "here"}}; }

// Three appends: the frames end at these offsets.
struct Written {
  std::vector<std::vector<Entry>> appends{
      {Opened{1}}, {Formed{Epoch{1}, std::nullopt, {worker(0, 7), worker(1, 8)}, 0}}, {Gone{WorkerId{8}}, Respawned{1}}};
  std::vector<std::size_t> ends{log_header().size()};
  std::vector<std::byte> bytes = log_header();

  Written() {
    for (std::uint32_t i = 0; i < appends.size(); ++i) {
      const auto frame = encode_frame(appends[i], i);
      bytes.insert(bytes.end(), frame.begin(), frame.end());
      ends.push_back(bytes.size());
    }
  }
  std::vector<Entry> entries_of(std::size_t frames) const {
    std::vector<Entry> all;
    for (std::size_t i = 0; i < frames; ++i) all.insert(all.end(), appends[i].begin(), appends[i].end());
    return all;
  }
};

void put(const std::string& path, ConstBytes bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

TEST(DecisionLog, HoldsWhatWasAppendedAfterItIsOpenedAgain) {
  const TempDir folder;
  const Written w;
  for (std::size_t i = 0; i < w.appends.size(); ++i) {
    DecisionLog log(folder.file("log"));
    EXPECT_EQ(log.found(), w.entries_of(i));
    EXPECT_EQ(log.cut_off(), 0u);
    log.append(w.appends[i]);
  }
  const std::string raw = read_file(folder.file("log"));
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(raw)), w.bytes));
  struct stat st {};
  ASSERT_EQ(stat(folder.file("log").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(DecisionLog, CutAtAnyByteItHoldsTheWholeAppendsBeforeAndTakesMore) {
  const TempDir folder;
  const Written w;
  for (std::size_t cut = 0; cut <= w.bytes.size(); ++cut) {
    SCOPED_TRACE(cut);
    put(folder.file("log"), ConstBytes(w.bytes).first(cut));
    std::size_t whole = 0;
    while (whole + 1 < w.ends.size() && w.ends[whole + 1] <= cut) ++whole;
    {
      DecisionLog log(folder.file("log"));
      ASSERT_EQ(log.found(), w.entries_of(whole));
      const std::size_t kept = cut < w.ends[0] ? 0 : w.ends[whole];
      ASSERT_EQ(log.cut_off(), cut - kept);
      log.append(std::vector<Entry>{Opened{9}});
    }
    auto expected = w.entries_of(whole);
    expected.emplace_back(Opened{9});
    ASSERT_EQ(DecisionLog(folder.file("log")).found(), expected);
  }
}

TEST(DecisionLog, ATailOfZerosOrNoiseIsCutOff) {  // what a file system may leave of a write that was under way
  const Written w;
  for (const int byte : {0, 0xa5, 0xff}) {
    auto bytes = w.bytes;
    bytes.resize(bytes.size() + 5000, static_cast<std::byte>(byte));
    EXPECT_EQ(decode_log(bytes, "log").entries, w.entries_of(3));
  }
}

TEST(DecisionLog, AFlippedBitInADecisionThatOthersFollowIsRefused) {
  const Written w;
  for (std::size_t at = w.ends[0]; at < w.ends[2]; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = w.bytes;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_EQ(failure_of([&] { decode_log(bytes, "log"); }).kind, Kind::corrupt) << at << " " << bit;
    }
}

TEST(DecisionLog, AFlippedBitInTheLastDecisionNeverBecomesAnother) {
  const Written w;
  for (std::size_t at = w.ends[2]; at < w.ends[3]; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = w.bytes;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_EQ(decode_log(bytes, "log").entries, w.entries_of(2)) << at << " " << bit;
    }
}

TEST(DecisionLog, RefusesOtherFilesWithoutTouchingThem) {
  const TempDir folder;
  for (const char* content : {"something else entirely", "cohortlx", "x"}) {
    std::ofstream(folder.file("log")) << content;
    EXPECT_THAT(failure_of([&] { DecisionLog log(folder.file("log")); }).what, HasSubstr("is no decision log"));
    EXPECT_EQ(read_file(folder.file("log")), content);
  }
}

TEST(DecisionLog, HasOneOwnerAtATime) {
  const TempDir folder;
  {
    const DecisionLog first(folder.file("log"));
    const Error error = failure_of([&] { DecisionLog second(folder.file("log")); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("held by another coordinator"));
  }
  EXPECT_NO_THROW(DecisionLog(folder.file("log")));
}

TEST(DecisionLog, AFileWithoutANameHasOneOwnerAtATimeToo) {
  const TempDir folder;
  const Written w;
  const Fd file{open(folder.file("log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_TRUE(file);
  ASSERT_EQ(unlink(folder.file("log").c_str()), 0);
  {
    DecisionLog first(file.get());
    first.append(w.appends[0]);
    EXPECT_EQ(failure_of([&] { DecisionLog second(file.get()); }).kind, Kind::usage);
  }
  EXPECT_EQ(DecisionLog(file.get()).found(), w.entries_of(1));
}

TEST(DecisionLog, FollowsNoSymbolicLink) {
  const TempDir folder;
  ASSERT_EQ(symlink(folder.file("elsewhere").c_str(), folder.file("log").c_str()), 0);
  EXPECT_EQ(failure_of([&] { DecisionLog log(folder.file("log")); }).kind, Kind::system);
}

TEST(DecisionLog, RefusesWhatIsNoPlainFile) {
  EXPECT_EQ(failure_of([&] { DecisionLog log("/dev/null"); }).kind, Kind::usage);
}

TEST(DecisionLog, AfterAFailedWriteItTakesNoMore) {
  const TempDir folder;
  const Written w;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails with EFBIG
  {
    DecisionLog log(folder.file("log"));
    log.append(w.appends[0]);
    const rlimit tight{w.ends[1] + 10, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const Error first = failure_of([&] { log.append(w.appends[1]); });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(first.kind, Kind::system);
    EXPECT_EQ(failure_of([&] { log.append(w.appends[1]); }).what, first.what) << "it is unknown what the disk holds now";
  }
  std::signal(SIGXFSZ, old);
  DecisionLog again(folder.file("log"));
  EXPECT_EQ(again.found(), w.entries_of(1));
  EXPECT_EQ(again.cut_off(), 10u);
}

}  // namespace
}  // namespace cohort::elastic
