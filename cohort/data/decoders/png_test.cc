#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/data/image.h"
#include "cohort/data/png_testing.h"

namespace cohort::data {

TEST(Png, DecodesToColourOrGrey) {
  const std::string file = png_file(2, 1, {10, 20, 30, 200, 200, 200});
  const Image colour = decode_image(file, 3, "a.png");
  EXPECT_EQ(colour.height, 2);
  EXPECT_EQ(colour.width, 1);
  EXPECT_THAT(colour.pixels, testing::ElementsAre(10, 20, 30, 200, 200, 200));
  EXPECT_EQ(decode_image(file, 1, "a.png").pixels[1], 200);
}

TEST(Png, RefusesEveryTruncation) {
  const std::string file = png_file(4, 4, std::vector<std::uint8_t>(48, 7));
  for (std::size_t n = 8; n + 16 < file.size(); ++n) {  // what follows the pixels is not missed
    const Error error = failure_of([&] { decode_image(file.substr(0, n), 3, "a.png"); });
    EXPECT_EQ(error.kind, Kind::corrupt) << n;
    EXPECT_THAT(error.what, testing::HasSubstr("a.png"));
  }
}

TEST(Image, ResizingToTheSameSizeOnlyMakesItPlanar) {
  const Image image{3, 2, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  EXPECT_THAT(resize_planar(image, 2, 2), testing::ElementsAre(1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12));
}

TEST(Image, ResizingIsBilinearBetweenPixelCentres) {
  EXPECT_THAT(resize_planar({1, 1, 2, {0, 100}}, 1, 4), testing::ElementsAre(0, 25, 75, 100));
  EXPECT_THAT(resize_planar({1, 2, 2, {0, 100, 100, 200}}, 1, 1), testing::ElementsAre(100));
  for (const std::uint8_t value : resize_planar({1, 3, 5, std::vector<std::uint8_t>(15, 77)}, 7, 4)) EXPECT_EQ(value, 77);
}

TEST(Image, SaysWhatItCannotRead) {
  const Error error = failure_of([] { decode_image("GIF89a", 3, "x.png"); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(testing::HasSubstr("x.png"), testing::HasSubstr("GIF89a"), testing::HasSubstr("png")));
}

}  // namespace cohort::data
