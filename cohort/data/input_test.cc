#include "cohort/data/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/testing.h"

namespace cohort::data {

using testing::HasSubstr;

TEST(Input, ReadsPlainAndGzipAlike) {
  const TempDir dir;
  const std::string text(300000, 'x');
  write_file_atomically(dir.file("plain"), text);
  write_file_atomically(dir.file("packed"), gzip(text));
  EXPECT_EQ(read_input(dir.file("plain")), text);
  EXPECT_EQ(read_input(dir.file("packed")), text);
}

TEST(Input, ReadsSeveralGzipMembersAsOneFile) { EXPECT_EQ(inflate_gzip(gzip("one ") + gzip("two"), "here", 100), "one two"); }

TEST(Input, NoticesEveryPlaceWhereGzipMayBeCutShort) {
  const std::string packed = gzip("some text, some more text, some text again");
  for (std::size_t n = 2; n < packed.size(); ++n) {
    const Error error = failure_of([&] { inflate_gzip(packed.substr(0, n), "a.gz", 1000); });
    EXPECT_EQ(error.kind, Kind::corrupt) << n;
    EXPECT_THAT(error.what, HasSubstr("a.gz"));
  }
}

TEST(Input, NoticesFlippedBytesInGzip) {
  std::string packed = gzip("some text, some more text, some text again");
  packed[packed.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(failure_of([&] { inflate_gzip(packed, "a.gz", 1000); }).kind, Kind::corrupt);
}

TEST(Input, RefusesToInflateMoreThanAllowed) {
  EXPECT_THAT(failure_of([] { inflate_gzip(gzip(std::string(100000, 'a')), "bomb.gz", 1000); }).what, HasSubstr("more than 1000 B"));
}

TEST(Input, NamesTheFilesItLookedFor) {
  const TempDir dir;
  constexpr std::array<std::string_view, 2> names{"a", "b"};
  const Error error = failure_of([&] { find_input(dir.path(), names, "install it"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, AllOf(HasSubstr("/a.gz"), HasSubstr("/b"), HasSubstr("install it")));
}

}  // namespace cohort::data
