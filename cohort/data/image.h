// Pictures from files: decoded to bytes and brought to one size.
// Threads: any, pure functions. Failure: Kind::corrupt naming the file; pictures above the limits (limits.h) are refused before memory is
// taken. To add a format: decoders/<word>.cc with `decoder_<word>`, the word in decoders/CMakeLists.txt, and its test.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::data {

struct Image {
  std::int64_t channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // interleaved: height x width x channels
};

struct Decoder {
  std::string_view name, magic;  // magic: what the files start with
  // channels: 1 (grey) or 3 (red, green, blue), whatever the file has.
  Image (*decode)(std::string_view file, std::int64_t channels, std::string_view where);
};

std::span<const Decoder* const> decoder_rows();
void check_pixels(std::int64_t height, std::int64_t width, std::string_view where);  // Kind::corrupt above the limit; for decoders/
Image decode_image(std::string_view file, std::int64_t channels, std::string_view where);

// Bilinear with pixel centres at half: out[y] samples in[(y + 0.5) in/out - 0.5], edges repeated. Planar: channel after channel.
std::vector<std::uint8_t> resize_planar(const Image& image, std::int64_t height, std::int64_t width);

}  // namespace cohort::data
