// JPEG by libjpeg. Its errors leave by longjmp, so nothing with a destructor is made between setjmp and the jump.
#include <csetjmp>
#include <cstdio>

#include "cohort/base/error.h"
#include "cohort/data/image.h"
#include "cohort/data/limits.h"

// clang-format off: it wants size_t and FILE declared
#include <jpeglib.h>
// clang-format on

namespace cohort::data {
namespace {

constexpr std::int64_t kOfSeveralScans = 3;  // what a pixel counts there: it takes nine bytes instead of three (limits.h)

struct Trouble {
  jpeg_error_mgr manager{};
  std::jmp_buf out{};
  std::int64_t max_scans = 0;
  bool too_large = false;  // the text says all; the file may be whole
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

// Called for every few rows of every scan: a progressive file can pass over the picture as often as it likes.
void count_scans(j_common_ptr jpeg) {
  auto* trouble = reinterpret_cast<Trouble*>(jpeg->err);
  const int scan = reinterpret_cast<jpeg_decompress_struct*>(jpeg)->input_scan_number;
  if (scan <= trouble->max_scans) return;
  std::snprintf(trouble->text, sizeof trouble->text, "at least %d scans are more than data.max_scans=%lld", scan,
                static_cast<long long>(trouble->max_scans));
  trouble->too_large = true;
  std::longjmp(trouble->out, 1);
}

// False on trouble.
bool read(jpeg_decompress_struct& jpeg, jpeg_progress_mgr& progress, Trouble& trouble, std::string_view file, std::int64_t channels,
          Image& image) {
  const std::int64_t max_pixels = input_limits().max_pixels;
  if (setjmp(trouble.out) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &progress;
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&jpeg, TRUE);
  const bool scans = jpeg_has_multiple_scans(&jpeg) == TRUE;
  if (std::int64_t{jpeg.image_width} * jpeg.image_height * (scans ? kOfSeveralScans : 1) > max_pixels) {
    std::snprintf(trouble.text, sizeof trouble.text, "%u x %u pixels%s are more than data.max_pixels=%lld", jpeg.image_width,
                  jpeg.image_height, scans ? " in several scans, which count threefold," : "", static_cast<long long>(max_pixels));
    trouble.too_large = true;
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
  trouble.max_scans = input_limits().max_scans;
  jpeg_progress_mgr progress{};
  progress.progress_monitor = count_scans;
  const Destroyer destroyer{jpeg};
  Image image;
  const bool good = read(jpeg, progress, trouble, file, channels, image);
  if (!good && trouble.too_large)
    throw_failure(Kind::corrupt, "{}: {} in a JPEG of {} bytes; raise it if the file can be trusted", where, trouble.text, file.size());
  if (!good)
    throw_failure(Kind::corrupt, "{}: {} bytes of broken JPEG ({}); fetch the file again or remove it", where, file.size(), trouble.text);
  return image;
}

}  // namespace

extern const Decoder decoder_jpeg{.name = "jpeg", .magic = "\xff\xd8\xff", .decode = decode};

}  // namespace cohort::data
