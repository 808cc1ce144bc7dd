#include "cohort/observe/png.h"

#include <zlib.h>

#include <string_view>

#include "cohort/base/error.h"

namespace cohort::observe {
namespace {

constexpr int kLargestSide = 1 << 14;  // a picture for people; more is a mistake in the shape

void append_big(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFFU);
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_big(out, static_cast<std::uint32_t>(data.size()));
  const auto from = out.size();
  out += type;
  out += data;
  const auto* bytes = reinterpret_cast<const Bytef*>(out.data() + from);
  append_big(out, static_cast<std::uint32_t>(crc32(0, bytes, static_cast<uInt>(out.size() - from))));
}

int color_type(int channels) {
  switch (channels) {
    case 1: return 0;
    case 3: return 2;
    case 4: return 6;
    default: throw_failure(Kind::usage, "png: {} channels; an image has 1 (grey), 3 (RGB) or 4 (RGB and alpha)", channels);
  }
}

std::string deflated(const std::string& raw) {
  auto size = compressBound(static_cast<uLong>(raw.size()));
  std::string out(size, '\0');
  const auto* from = reinterpret_cast<const Bytef*>(raw.data());
  const int code = compress2(reinterpret_cast<Bytef*>(out.data()), &size, from, static_cast<uLong>(raw.size()), Z_DEFAULT_COMPRESSION);
  if (code != Z_OK) throw_failure(Kind::system, "png: zlib could not compress {} bytes (code {})", raw.size(), code);
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(const Image& image) {
  const int color = color_type(image.channels);
  if (image.width < 1 || image.height < 1 || image.width > kLargestSide || image.height > kLargestSide)
    throw_failure(Kind::usage, "png: {} x {} pixels; each side is 1 to {}", image.width, image.height, kLargestSide);
  const auto row = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
  if (image.pixels.size() != row * static_cast<std::size_t>(image.height))
    throw_failure(Kind::usage, "png: {} bytes for {} x {} pixels of {} channels; it needs {}", image.pixels.size(), image.width,
                  image.height, image.channels, row * static_cast<std::size_t>(image.height));
  std::string raw;
  raw.reserve((row + 1) * static_cast<std::size_t>(image.height));
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
    raw += '\0';  // filter: none
    raw.append(reinterpret_cast<const char*>(image.pixels.data() + y * row), row);
  }
  std::string header;
  append_big(header, static_cast<std::uint32_t>(image.width));
  append_big(header, static_cast<std::uint32_t>(image.height));
  header += {8, static_cast<char>(color), 0, 0, 0};  // bits, colour, deflate, filters, no interlacing
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", deflated(raw));
  append_chunk(out, "IEND", {});
  return out;
}

}  // namespace cohort::observe
