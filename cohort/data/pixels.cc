#include "cohort/data/pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cohort::data {

void scale_pixels(const std::uint8_t* __restrict in, float* __restrict out, std::int64_t count, float times, float plus) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * times + plus;
}

void scale_pixels(const float* __restrict in, float* __restrict out, std::int64_t count, float times, float plus) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = in[i] * times + plus;
}

void widen(const std::uint8_t* __restrict in, std::int64_t* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = in[i];
}

void mirror(const float* __restrict in, float* __restrict out, const ImageShape& shape) {
  const std::int64_t width = shape.width;
  for (std::int64_t row = 0; row < shape.channels * shape.height; ++row) {
    const float* from = in + row * width;
    float* to = out + row * width;
    for (std::int64_t x = 0; x < width; ++x) to[x] = from[width - 1 - x];
  }
}

void move(const float* __restrict in, float* __restrict out, const ImageShape& shape, std::int64_t down, std::int64_t right) {
  const std::int64_t height = shape.height, width = shape.width;
  std::memset(out, 0, static_cast<std::size_t>(shape.elements()) * sizeof(float));
  const std::int64_t columns = width - std::abs(right);
  if (columns <= 0) return;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t y = std::max<std::int64_t>(0, down); y < std::min(height, height + down); ++y) {
      const float* from = in + c * shape.plane() + (y - down) * width + std::max<std::int64_t>(0, -right);
      float* to = out + c * shape.plane() + y * width + std::max<std::int64_t>(0, right);
      std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
}

}  // namespace cohort::data
