#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "cohort/base/failure_of.h"
#include "cohort/data/image.h"

// clang-format off: it wants size_t and FILE declared
#include <jpeglib.h>
// clang-format on

namespace cohort::data {
namespace {

// A picture of one colour.
std::string jpeg_file(unsigned height, unsigned width, std::array<std::uint8_t, 3> colour) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<std::uint8_t> line;
  for (unsigned x = 0; x < width; ++x) line.insert(line.end(), colour.begin(), colour.end());
  JSAMPROW row = line.data();
  while (jpeg.next_scanline < height) jpeg_write_scanlines(&jpeg, &row, 1);
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

}  // namespace

TEST(Jpeg, DecodesToColourOrGrey) {
  const std::string file = jpeg_file(9, 17, {200, 100, 50});
  const Image colour = decode_image(file, 3, "a.jpg");
  EXPECT_EQ(colour.height, 9);
  EXPECT_EQ(colour.width, 17);
  ASSERT_EQ(colour.pixels.size(), 9u * 17 * 3);
  EXPECT_NEAR(colour.pixels[0], 200, 4);
  EXPECT_NEAR(colour.pixels[2], 50, 4);
  const Image grey = decode_image(file, 1, "a.jpg");
  EXPECT_NEAR(grey.pixels[0], 0.299 * 200 + 0.587 * 100 + 0.114 * 50, 4);
}

TEST(Jpeg, RefusesEveryTruncation) {
  const std::string file = jpeg_file(16, 16, {1, 2, 3});
  for (std::size_t n = 3; n + 2 < file.size(); n += 7) {
    const Error error = failure_of([&] { decode_image(file.substr(0, n), 3, "cat/a.jpg"); });
    EXPECT_EQ(error.kind, Kind::corrupt) << n;
    EXPECT_THAT(error.what, testing::HasSubstr("cat/a.jpg"));
  }
}

}  // namespace cohort::data
