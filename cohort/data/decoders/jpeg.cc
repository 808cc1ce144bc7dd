// JPEG by libjpeg. Its errors leave by longjmp, so nothing with a destructor is made between setjmp and the jump.
#include <csetjmp>
#include <cstdio>

#include "cohort/base/error.h"
#include "cohort/data/image.h"

// clang-format off: it wants size_t and FILE declared
#include <jpeglib.h>
// clang-format on

namespace cohort::data {
namespace {

struct Trouble {
  jpeg_error_mgr manager{};
  std::jmp_buf out{};
  char text[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void leave(j_common_ptr jpeg) {
  auto* trouble = reinterpret_cast<Trouble*>(jpeg->err);  // the manager is its first member
  jpeg->err->format_message(jpeg, trouble->text);
  std::longjmp(trouble->out, 1);
}

// A warning (data cut short, bad codes) would give a picture with grey parts: take it as the error it is.
void warn(j_common_ptr jpeg, int level) {
  if (level < 0) leave(jpeg);
}

// False on trouble.
bool read(jpeg_decompress_struct& jpeg, Trouble& trouble, std::string_view file, std::int64_t channels, Image& image) {
  if (setjmp(trouble.out) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&jpeg, TRUE);
  if (std::int64_t{jpeg.image_width} * jpeg.image_height > kMostPixels) {
    std::snprintf(trouble.text, sizeof trouble.text, "%u x %u pixels are too many", jpeg.image_width, jpeg.image_height);
    return false;
  }
  jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  image.channels = channels;
  image.height = jpeg.output_height;
  image.width = jpeg.output_width;
  const std::size_t stride = std::size_t{jpeg.output_width} * static_cast<std::size_t>(channels);
  image.pixels.resize(stride * jpeg.output_height);  // belongs to the caller: a jump from the rows below leaks nothing
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = image.pixels.data() + stride * jpeg.output_scanline;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

struct Destroyer {  // also when memory for the picture runs out
  jpeg_decompress_struct& jpeg;
  ~Destroyer() { jpeg_destroy_decompress(&jpeg); }
};

Image decode(std::string_view file, std::int64_t channels, std::string_view where) {
  Trouble trouble;
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&trouble.manager);
  trouble.manager.error_exit = leave;
  trouble.manager.emit_message = warn;
  const Destroyer destroyer{jpeg};
  Image image;
  if (!read(jpeg, trouble, file, channels, image))
    throw_failure(Kind::corrupt, "{}: {} bytes of broken JPEG ({}); fetch the file again or remove it", where, file.size(), trouble.text);
  return image;
}

}  // namespace

extern const Decoder decoder_jpeg{.name = "jpeg", .magic = "\xff\xd8\xff", .decode = decode};

}  // namespace cohort::data
