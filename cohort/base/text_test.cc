#include "cohort/base/text.h"

#include <gmock/gmock.h>

#include <random>

#include "cohort/base/bytes.h"
#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Text, ReadsSizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("1MiB"), 1_MiB);
  EXPECT_EQ(parse_bytes(" 1.5 GiB "), 1536_MiB);
  EXPECT_EQ(parse_bytes("100MB"), 100'000'000U);
  EXPECT_EQ(parse_bytes("1kB"), 1000U);
  EXPECT_EQ(parse_bytes("4k"), 4096U);
  EXPECT_EQ(parse_bytes("4K"), 4096U);
  EXPECT_EQ(parse_bytes("25e6"), 25'000'000U);
  EXPECT_EQ(parse_bytes("2.3MB"), 2'300'000U);
  EXPECT_EQ(parse_bytes("9007199254740993"), 9007199254740993U) << "2^53 + 1 is exact";
}

TEST(Text, RefusesWhatIsNoSizeNamingIt) {
  for (const char* text :
       {"", " ", "-1", "+1", "abc", "1XB", "1 M i B", "MiB", "inf", "nan", "0x10", "1e999", "1mib", ".5k", "1,5MB", "1MiB2"}) {
    const auto error = failure_of([&] { parse_bytes(text); });
    EXPECT_EQ(error.kind, Kind::usage) << text;
    EXPECT_THAT(error.what, HasSubstr(std::string("'") + text + "'"));
  }
  EXPECT_THAT(failure_of([] { parse_bytes("0.1KiB"); }).what, HasSubstr("whole number"));
  EXPECT_THAT(failure_of([] { parse_bytes("9000000000GiB"); }).what, HasSubstr("larger than any memory"));
  EXPECT_THAT(failure_of([] { parse_bytes("18446744073709551616"); }).what, HasSubstr("larger than any memory"));
}

TEST(Text, WritesSizesForPeopleAndForFiles) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(24_MiB), "24 MiB");
  EXPECT_EQ(format_bytes(1023_MiB), "1023 MiB");
  EXPECT_EQ(exact_bytes(24_MiB), "24MiB");
  EXPECT_EQ(exact_bytes(1000), "1000");
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t bytes = random() >> (2 + random() % 60) << random() % 2;
    EXPECT_EQ(parse_bytes(exact_bytes(bytes)), bytes);
    EXPECT_EQ(parse_bytes(exact_bytes(bytes >> 30 << 30)), bytes >> 30 << 30);
  }
}

TEST(Text, ReadsAndWritesTimes) {
  EXPECT_EQ(parse_seconds("500ms"), 500ms);
  EXPECT_EQ(parse_seconds("2s"), 2s);
  EXPECT_EQ(parse_seconds("2"), 2s);
  EXPECT_EQ(parse_seconds("5min"), 5min);
  EXPECT_EQ(parse_seconds("1.5h"), 90min);
  EXPECT_DOUBLE_EQ(parse_seconds("36us").count(), 36e-6);
  for (const char* text : {"", "-1s", "1 day", "s", "nan", "1e999s"})
    EXPECT_EQ(failure_of([&] { parse_seconds(text); }).kind, Kind::usage) << text;
  EXPECT_EQ(format_seconds(0s), "0 s");
  EXPECT_EQ(format_seconds(Seconds{36.2e-6}), "36.2 us");
  EXPECT_EQ(format_seconds(Seconds{999.6e-6}), "1 ms");
  EXPECT_EQ(format_seconds(1500ms), "1.5 s");
  EXPECT_EQ(format_seconds(-1500ms), "-1.5 s");
  EXPECT_EQ(format_seconds(150s), "2.5 min");
  EXPECT_EQ(format_us(Seconds{0.412e-6}), "0.412");
  EXPECT_EQ(format_us(Seconds{9104.3e-6}), "9104");
  for (const double s : {0.0, 0.1, 1.0 / 3.0, 1e-9, 300.0, 1e7}) EXPECT_EQ(parse_seconds(exact_seconds(Seconds{s})).count(), s);
}

TEST(Text, NumbersAreDecimalAndNothingElse) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "010", "-01", "1e3", "0x10", "+5", " 5", "5 ", "5.0", "9223372036854775808", "--1"})
    EXPECT_EQ(failure_of([&] { parse_int(text); }).kind, Kind::usage) << text;
  EXPECT_EQ(parse_real("1e-3"), 1e-3);
  EXPECT_EQ(parse_real("-0.5"), -0.5);
  for (const char* text : {"", "-", "inf", "-inf", "nan", "0x1p3", ".5", "1.0f", "1e999"})
    EXPECT_EQ(failure_of([&] { parse_real(text); }).kind, Kind::usage) << text;
  EXPECT_TRUE(parse_bool("true"));
  EXPECT_FALSE(parse_bool("false"));
  for (const char* text : {"", "yes", "no", "True", "1", "on"}) EXPECT_EQ(failure_of([&] { parse_bool(text); }).kind, Kind::usage) << text;
}

TEST(Text, SplitsTrimsAndJoins) {
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim("  "), "");
  EXPECT_THAT(split("", ','), IsEmpty());
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_EQ(join(split("a,b,c", ','), " | "), "a | b | c");
  EXPECT_EQ(join(std::vector<std::string>{}, ","), "");
}

TEST(Text, PrintableTextCannotDriveTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n\x7f\tc"), "a\\x1b[31mb\\n\\x7f\\tc");
  EXPECT_EQ(printable("gr\u00fc\u00df"), "gr\u00fc\u00df");
  EXPECT_THAT(printable("a\u009bb"), testing::Not(HasSubstr("\u009b")));
  EXPECT_EQ(printable(std::string(300, 'x')).size(), 203U);
}

TEST(Text, GuessesTheNameATypistMeant) {
  const std::vector<std::string_view> rows = {"ring", "tree", "halving_doubling", "recursive_doubling"};
  EXPECT_EQ(nearest("rnig", rows), "ring");
  EXPECT_EQ(nearest("Ring", rows), "ring");
  EXPECT_EQ(nearest("halving-doubling", rows), "halving_doubling");
  EXPECT_EQ(nearest("halvingdubling", rows), "halving_doubling");
  EXPECT_EQ(nearest("xyz", rows), "");
  EXPECT_EQ(nearest("", rows), "");
  EXPECT_EQ(nearest(std::string(100'000, 'r'), rows), "") << "long junk is cheap";
}

TEST(Text, UnknownNamesComeWithAHintAndTheKnownOnes) {
  const std::vector<std::string_view> known = {"none", "topk"};
  const auto error = failure_of([&] { throw_unknown("codec", "tpok", known); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_EQ(error.what, "unknown codec 'tpok'; did you mean 'topk'? known: none, topk");
  EXPECT_EQ(unknown_text("codec", "zzz", known), "unknown codec 'zzz'; known: none, topk");
  EXPECT_EQ(unknown_text("codec", "zzz", {}), "unknown codec 'zzz'; known: none");
}

TEST(Text, ALongListIsLeftOutWhereANameIsNear) {
  std::vector<std::string> names;
  for (int k = 0; k < 60; ++k) names.push_back("setting_" + std::to_string(k));
  names.push_back("epochs");
  const std::vector<std::string_view> known(names.begin(), names.end());
  EXPECT_EQ(unknown_text("setting", "epoch", known), "unknown setting 'epoch'; did you mean 'epochs'?");
  EXPECT_THAT(unknown_text("setting", "zzz", known), testing::HasSubstr("known: setting_0, setting_1"));
}

}  // namespace
}  // namespace cohort
