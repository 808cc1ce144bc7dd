#include "cohort/observe/tensorboard.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::observe {
namespace {

using testing::ElementsAre;

// Castagnoli bit by bit: what the records are checked with shares no code with what wrote them.
std::uint32_t plain_masked_crc(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::uint64_t little(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = little(file.substr(at, 8));
    EXPECT_EQ(little(file.substr(at + 8, 4)), plain_masked_crc(file.substr(at, 8)));
    EXPECT_LE(at + 16 + length, file.size()) << "torn";
    out.push_back(file.substr(at + 12, length));
    EXPECT_EQ(little(file.substr(at + 12 + length, 4)), plain_masked_crc(out.back()));
    at += 16 + length;
  }
  return out;
}

// A message as {field number: raw value}: varints as 8 little bytes, the rest as it stands. Fields here occur once.
std::map<unsigned, std::string> message(std::string_view bytes) {
  std::map<unsigned, std::string> out;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.size()) {
    const auto key = varint();
    std::string value;
    if ((key & 7U) == 0) {
      const auto v = varint();
      for (unsigned i = 0; i < 8; ++i) value += static_cast<char>(v >> 8 * i & 0xFFU);
    } else {
      const auto length = (key & 7U) == 2 ? varint() : (key & 7U) == 1 ? 8 : 4;
      value = bytes.substr(at, length);
      at += length;
    }
    EXPECT_TRUE(out.emplace(static_cast<unsigned>(key >> 3), value).second) << "field " << (key >> 3);
  }
  return out;
}

double real(const std::string& bytes) {
  return bytes.size() == 4 ? std::bit_cast<float>(static_cast<std::uint32_t>(little(bytes))) : std::bit_cast<double>(little(bytes));
}
std::vector<double> reals(const std::string& packed) {
  std::vector<double> out;
  for (std::size_t at = 0; at < packed.size(); at += 8) out.push_back(real(packed.substr(at, 8)));
  return out;
}
std::map<unsigned, std::string> value_of(const std::string& event) { return message(message(message(event).at(5)).at(1)); }

TEST(Event, AScalarIsTheseBytes) {
  const std::string expected{
      "\x09\0\0\0\0\0\0\xF8\x3F"                    // wall_time 1.5
      "\x10\x2C"                                    // step 44
      "\x2A\x0D\x0A\x0B\x0A\x04loss\x15\0\0\0\x3F"  // summary { value { tag, simple_value 0.5 } }
      ,
      9 + 2 + 15};
  EXPECT_EQ(scalar_event({1.5, 44}, "loss", 0.5), expected);
}

TEST(Event, ARecordIsFramedByMaskedChecksums) {
  EXPECT_EQ(masked_crc("123456789"), (0xE3069283U >> 15 | 0xE3069283U << 17) + 0xa282ead8U) << "the check value of crc32c";
  const std::string payload(300, 'p');
  EXPECT_THAT(records_of(record_of(payload) + record_of("")), ElementsAre(payload, ""));
}

TEST(Event, HistogramBucketsHoldEveryFiniteValue) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values{-2, -0.5F, 0, 0, 1e-3F, 1, 3.4e38F, -3.4e38F, inf, -inf, std::nanf("")};
  const auto h = histogram_of(values);
  EXPECT_EQ(h.count, 8);
  EXPECT_EQ(h.nonfinite, 3U);
  EXPECT_EQ(h.min, -3.4e38F);
  EXPECT_EQ(std::accumulate(h.counts.begin(), h.counts.end(), 0.0), 8);
  ASSERT_EQ(h.limits.size(), h.counts.size());
  for (std::size_t i = 1; i < h.limits.size(); ++i) {
    EXPECT_LT(h.limits[i - 1], h.limits[i]);
    double inside = 0;
    for (const float v : values) inside += v > h.limits[i - 1] && v <= h.limits[i] ? 1 : 0;
    EXPECT_EQ(h.counts[i], inside) << "bucket up to " << h.limits[i];
  }
}

TEST(Event, HistogramOfNothingHasNoBuckets) {
  EXPECT_TRUE(histogram_of({}).limits.empty());
  const std::vector<float> one{0.25F};
  const auto h = histogram_of(one);
  EXPECT_THAT(h.counts, ElementsAre(0, 1)) << "an empty bucket first, whose limit is where the other starts";
  EXPECT_LT(h.limits[0], 0.25);
  EXPECT_GE(h.limits[1], 0.25);
}

TEST(Tensorboard, WritesVersionThenEventsInOrder) {
  const TempDir dir;
  double now = 1731683642.5;
  std::string path;
  {
    EventWriter events(dir.path(), Rank{0}, {.clock = [&] { return now; }});
    path = events.path();
    events.scalar("train/loss", 7, 0.25);
    const std::vector<float> weights{0.5F, 0.5F, -1.5F};
    events.histogram("w", -1, weights);
    const std::vector<std::uint8_t> pixels(12, 200);
    events.image("sample", 9, {.width = 2, .height = 2, .channels = 3, .pixels = pixels});
  }
  EXPECT_THAT(path, testing::StartsWith(dir.path() + "/events.out.tfevents.1731683642."));
  const auto records = records_of(read_file(path));
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(message(records[0]).at(3), "brain.Event:2");
  EXPECT_EQ(real(message(records[0]).at(1)), now);
  EXPECT_EQ(little(message(records[1]).at(2)), 7U);
  EXPECT_EQ(value_of(records[1]).at(1), "train/loss");
  EXPECT_EQ(real(value_of(records[1]).at(2)), 0.25);
  const auto histo = message(value_of(records[2]).at(5));
  EXPECT_EQ(static_cast<std::int64_t>(little(message(records[2]).at(2))), -1);
  EXPECT_EQ(real(histo.at(1)), -1.5);
  EXPECT_EQ(real(histo.at(3)), 3);
  EXPECT_EQ(real(histo.at(4)), -0.5);
  EXPECT_EQ(real(histo.at(5)), 2.75);
  EXPECT_EQ(reals(histo.at(6)).size(), reals(histo.at(7)).size());
  const auto image = message(value_of(records[3]).at(4));
  EXPECT_EQ(little(image.at(1)), 2U);
  EXPECT_EQ(little(image.at(3)), 3U);
  EXPECT_EQ(image.at(4).substr(1, 3), "PNG");
}

TEST(Tensorboard, FlushesEveryFewSecondsOfItsClock) {
  const TempDir dir;
  double now = 100;
  EventWriter events(dir.path(), Rank{0}, {.flush_every = 5s, .clock = [&] { return now; }});
  const auto written = [&] { return records_of(read_file(events.path())).size() - 1; };
  events.scalar("a", 1, 1);
  now = 104.9;
  events.scalar("a", 2, 1);
  EXPECT_EQ(written(), 0U);
  now = 105;
  events.scalar("a", 3, 1);
  EXPECT_EQ(written(), 3U);
  events.scalar("a", 4, 1);
  EXPECT_EQ(written(), 3U);
  now = 50;  // the clock was set back
  events.scalar("a", 5, 1);
  EXPECT_EQ(written(), 5U);
  events.scalar("a", 6, 1);
  events.flush();
  EXPECT_EQ(written(), 6U);
}

TEST(Tensorboard, ARestartOpensANewFileThatSortsBehind) {
  const TempDir dir;
  const auto clock = [] { return 1000.0; };
  const EventWriter first(dir.path(), Rank{0}, {.clock = clock});
  const EventWriter second(dir.path(), Rank{0}, {.resumes_at = 40, .clock = clock});
  EXPECT_LT(first.path(), second.path());
  const auto records = records_of(read_file(second.path()));
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(message(records[0]).at(3), "brain.Event:2");
  EXPECT_EQ(little(message(records[1]).at(2)), 40U);
  EXPECT_EQ(little(message(message(records[1]).at(7)).at(1)), 1U) << "SessionLog.START";
}

TEST(Tensorboard, EveryRankHasItsFolder) {
  const TempDir dir;
  EXPECT_EQ(event_folder("run", Rank{0}), "run");
  EXPECT_EQ(event_folder("run", kNoRank), "run");
  const EventWriter third(dir.file("new/run"), Rank{3});
  EXPECT_EQ(std::filesystem::path(third.path()).parent_path(), dir.file("new/run/rank3"));
  EXPECT_EQ(failure_of([] { EventWriter("/proc/no/run", Rank{0}); }).kind, Kind::system);
}

}  // namespace
}  // namespace cohort::observe
