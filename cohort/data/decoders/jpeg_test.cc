#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cohort/base/failure_of.h"
#include "cohort/data/image.h"
#include "cohort/data/limits.h"

// clang-format off: it wants size_t and FILE declared
#include <jpeglib.h>
// clang-format on

namespace cohort::data {
namespace {

// A picture of one colour; progressive: in so many scans, 0: not.
std::string jpeg_file(unsigned height, unsigned width, std::array<std::uint8_t, 3> colour, int scans = 0) {
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
  std::vector<jpeg_scan_info> script;  // colour first, then one coefficient of the first component after the other
  if (scans > 0) script.push_back({.comps_in_scan = 3, .component_index = {0, 1, 2, 0}, .Ss = 0, .Se = 0, .Ah = 0, .Al = 0});
  for (int i = 1; i < scans; ++i)
    script.push_back(
        {.comps_in_scan = 1, .component_index = {(i - 1) / 63, 0, 0, 0}, .Ss = (i - 1) % 63 + 1, .Se = (i - 1) % 63 + 1, .Ah = 0, .Al = 0});
  if (scans > 0) jpeg.scan_info = script.data(), jpeg.num_scans = scans;
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

// With another size in its header.
std::string declaring(std::string file, unsigned height, unsigned width) {
  const auto frame = file.find("\xff\xc2");  // of a progressive JPEG: marker, length, bits of a sample, height, width
  for (const auto& [at, value] : {std::pair{frame + 5, height}, std::pair{frame + 7, width}}) {
    file.at(at) = static_cast<char>(value >> 8);
    file.at(at + 1) = static_cast<char>(value & 255);
  }
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

TEST(Jpeg, OfTooManyScansOrPixelsIsRefusedWithTheSettingThatAllowsIt) {
  const std::string ten = jpeg_file(16, 16, {9, 8, 7}, 10), many = jpeg_file(16, 16, {9, 8, 7}, 60);
  EXPECT_EQ(decode_image(ten, 3, "ten.jpg").height, 16);
  const Error error = failure_of([&] { decode_image(many, 3, "many.jpg"); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(testing::HasSubstr("many.jpg"), testing::HasSubstr("31 scans"), testing::HasSubstr("data.max_scans=30")));
  set_input_limits({.max_scans = 60});
  EXPECT_EQ(decode_image(many, 3, "many.jpg").width, 16);
  set_input_limits({.max_pixels = 255});
  EXPECT_THAT(failure_of([&] {
                decode_image(jpeg_file(16, 16, {9, 8, 7}), 3, "a.jpg");
              }).what,
              testing::HasSubstr("16 x 16 pixels are more than data.max_pixels=255"));
  set_input_limits({});
}

TEST(Jpeg, InSeveralScansIsRefusedForAThirdOfThePixelsBeforeMemoryIsTakenForThem) {
  const std::string ten = jpeg_file(16, 16, {9, 8, 7}, 10);
  set_input_limits({.max_pixels = 3 * 256 - 1});
  const Error error = failure_of([&] { decode_image(ten, 3, "ten.jpg"); });
  EXPECT_THAT(error.what, testing::HasSubstr("16 x 16 pixels in several scans, which count threefold, are more than data.max_pixels=767"));
  EXPECT_EQ(decode_image(jpeg_file(16, 16, {9, 8, 7}), 3, "once.jpg").width, 16);
  set_input_limits({.max_pixels = 3 * 256});
  EXPECT_EQ(decode_image(ten, 3, "ten.jpg").width, 16);
  set_input_limits({});
  // 870 kB may declare ten thousand by ten thousand: 900 MB, and seconds.
  EXPECT_THAT(failure_of([&] { decode_image(declaring(ten, 10'000, 10'000), 3, "huge.jpg"); }).what,
              AllOf(testing::HasSubstr("10000 x 10000 pixels in several scans"), testing::HasSubstr("data.max_pixels=100000000")));
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
