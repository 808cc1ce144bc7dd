// For tests: PNG files made in memory. By hand on zlib, so that tests of folders do not depend on libpng's writer.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

// height x width pixels of red, green, blue.
inline std::string png_file(std::uint32_t height, std::uint32_t width, const std::vector<std::uint8_t>& rgb) {
  const auto big_endian = [](std::uint32_t n) {
    std::string text;
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(n >> shift);
    return text;
  };
  const auto chunk = [&](const std::string& kind, const std::string& body) {
    const std::string both = kind + body;
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(both.data()), static_cast<uInt>(both.size()));
    return big_endian(static_cast<std::uint32_t>(body.size())) + both + big_endian(static_cast<std::uint32_t>(sum));
  };
  std::string lines;
  for (std::uint32_t y = 0; y < height; ++y) {
    lines += '\0';  // no filter
    lines.append(reinterpret_cast<const char*>(rgb.data()) + std::size_t{y} * width * 3, std::size_t{width} * 3);
  }
  std::string packed(lines.size() + 100, '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(lines.data()), lines.size());
  packed.resize(size);
  const std::string header = big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", packed) + chunk("IEND", "");
}

}  // namespace cohort::data
