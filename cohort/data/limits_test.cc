#include "cohort/data/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/bytes.h"
#include "cohort/base/failure_of.h"
#include "cohort/data/image.h"
#include "cohort/data/input.h"
#include "cohort/data/png_testing.h"
#include "cohort/data/testing.h"

namespace cohort::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Limited : testing::Test {
  ~Limited() override { set_input_limits({}); }
};

// The header of a picture of that size, the data of a small one.
std::string declaring(std::uint32_t width, std::uint32_t height) {
  std::string file = png_file(1, 1, {1, 2, 3});
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) file[at + i] = static_cast<char>(value >> (24 - 8 * i));
  };
  put(16, width);
  put(20, height);
  put(29, static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(file.data() + 12), 17)));
  return file;
}

}  // namespace

TEST_F(Limited, AGzipThatGrowsTooMuchIsRefusedAndASmallOneNever) {
  const std::string zeros(20_MiB, '\0'), file = gzip(zeros);  // about 1000 to 1
  const Error error = failure_of([&] { inflate_gzip(file, "zeros.gz", 1_GiB); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("zeros.gz"), HasSubstr(std::to_string(file.size())), HasSubstr("data.max_inflate_ratio=200")));
  set_input_limits({.max_inflate_ratio = 1100});
  EXPECT_EQ(inflate_gzip(file, "zeros.gz", 1_GiB).size(), zeros.size());
  set_input_limits({.max_inflate_ratio = 1});
  EXPECT_EQ(inflate_gzip(gzip(zeros.substr(0, 8_MiB)), "zeros.gz", 1_GiB).size(), 8_MiB);
}

TEST_F(Limited, APngIsRefusedForThePixelsItDeclares) {
  const Error error = failure_of([] { decode_image(declaring(20000, 6000), 3, "big.png"); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("big.png"), HasSubstr("20000 x 6000"), HasSubstr("data.max_pixels=100000000")));
  set_input_limits({.max_pixels = 5});
  EXPECT_NO_THROW(decode_image(png_file(1, 5, std::vector<std::uint8_t>(15)), 3, "a.png"));
  EXPECT_THAT(failure_of([] { decode_image(png_file(2, 3, std::vector<std::uint8_t>(18)), 3, "a.png"); }).what,
              HasSubstr("data.max_pixels=5"));
}

TEST_F(Limited, APngShorterThanItsPixelsTakeIsRefused) {
  const Error error = failure_of([] { decode_image(declaring(9000, 9000), 3, "short.png"); });
  EXPECT_THAT(error.what, AllOf(HasSubstr("short.png"), HasSubstr("cannot hold the 9000 x 9000 pixels")));
}

}  // namespace cohort::data
