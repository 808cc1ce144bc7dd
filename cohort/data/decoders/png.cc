// PNG by libpng's simplified interface, which gathers errors instead of jumping. Transparency is laid on black.
#include <png.h>

#include <algorithm>
#include <array>

#include "cohort/base/error.h"
#include "cohort/data/image.h"

namespace cohort::data {
namespace {

struct Png {
  png_image image{};
  Png() { image.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
};

// Deflate makes at most 1032 bytes of one: a file too short for the picture its header declares is refused before memory is taken for it.
void check_size(std::string_view file, std::int64_t width, std::int64_t height, std::string_view where) {
  constexpr std::int64_t kMostRatio = 1032;
  constexpr std::size_t kDepthAt = 24, kColourAt = 25;                  // in the header chunk, which comes first
  constexpr std::array<std::int64_t, 7> kSamples{1, 0, 3, 1, 2, 0, 4};  // of a pixel, by type of colour
  const auto colour = static_cast<unsigned char>(file.at(kColourAt));
  const std::int64_t bits = static_cast<unsigned char>(file.at(kDepthAt)) * kSamples.at(std::min<std::size_t>(colour, 6));
  const std::int64_t needed = height * ((width * bits + 7) / 8 + 1) / kMostRatio;
  if (static_cast<std::int64_t>(file.size()) < needed)
    throw_failure(Kind::corrupt,
                  "{}: {} bytes cannot hold the {} x {} pixels that its header declares, which take at least {}; fetch it again", where,
                  file.size(), width, height, needed);
}

Image decode(std::string_view file, std::int64_t channels, std::string_view where) {
  Png png;
  const auto check = [&](bool good) {
    // Warnings come through with a picture; only errors leave none.
    if (!good)
      throw_failure(Kind::corrupt, "{}: {} bytes of broken PNG ({}); fetch the file again or remove it", where, file.size(),
                    png.image.message);
  };
  check(png_image_begin_read_from_memory(&png.image, file.data(), file.size()) != 0);
  check_pixels(png.image.height, png.image.width, where);
  check_size(file, png.image.width, png.image.height, where);
  png.image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Image image{.channels = channels, .height = png.image.height, .width = png.image.width, .pixels = {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png.image));
  const png_color black{0, 0, 0};
  check(png_image_finish_read(&png.image, &black, image.pixels.data(), 0, nullptr) != 0);
  return image;
}

}  // namespace

extern const Decoder decoder_png{.name = "png", .magic = "\x89PNG\r\n\x1a\n", .decode = decode};

}  // namespace cohort::data
