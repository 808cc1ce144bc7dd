// PNG by libpng's simplified interface, which gathers errors instead of jumping. Transparency is laid on black.
#include <png.h>

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

Image decode(std::string_view file, std::int64_t channels, std::string_view where) {
  Png png;
  const auto check = [&](bool good) {
    // Warnings come through with a picture; only errors leave none.
    if (!good)
      throw_failure(Kind::corrupt, "{}: {} bytes of broken PNG ({}); fetch the file again or remove it", where, file.size(),
                    png.image.message);
  };
  check(png_image_begin_read_from_memory(&png.image, file.data(), file.size()) != 0);
  if (std::int64_t{png.image.width} * png.image.height > kMostPixels) {
    throw_failure(Kind::corrupt, "{}: {} x {} pixels are too many", where, png.image.width, png.image.height);
  }
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
