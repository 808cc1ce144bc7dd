// Pixels to PNG: eight bits a channel, no palette, no interlacing; compressed by zlib.
// Threads: pure. Failure: Kind::usage when the sizes do not fit each other.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace cohort::observe {

struct Image {
  int width = 0;
  int height = 0;
  int channels = 1;                      // 1 grey, 3 RGB, 4 RGB and alpha
  std::span<const std::uint8_t> pixels;  // row by row from the top, channels together (height x width x channels); borrowed
};

std::string encode_png(const Image& image);

}  // namespace cohort::observe
