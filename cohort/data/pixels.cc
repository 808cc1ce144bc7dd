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

namespace {

constexpr int kRun = 64;  // pixels whose coordinates are worked out together, so that the compiler can use vectors

// Along one axis: the two neighbours of a place and their weights; for a neighbour outside the image stands pixel 0 with weight zero.
struct Taps {
  int low[kRun], high[kRun];
  float low_weight[kRun], high_weight[kRun];
};

// `count` places start + slope * x for x = first, first + 1, .., relative to the centre, on an axis of `size` pixels.
void find_taps(Taps& t, float centre, float start, float slope, float first, int count, int size) {
  const auto end = static_cast<float>(size);
  const int last = size - 1;
  int* __restrict lows = t.low;
  int* __restrict highs = t.high;
  float* __restrict low_weight = t.low_weight;
  float* __restrict high_weight = t.high_weight;
  for (int i = 0; i < count; ++i) {
    float place = centre + (start + slope * (first + static_cast<float>(i)));
    place = place > -1.0F ? place : -1.0F;  // one pixel outside everything is zero already, and no integer overflows
    place = place < end ? place : end;
    const int low = static_cast<int>(place + 1) - 1;  // floor
    const float part = place - static_cast<float>(low);
    // Steps of 0 and 1 instead of conditions: they go into vectors.
    const int low_inside = static_cast<int>(low >= 0) & static_cast<int>(low <= last);
    const int high_inside = static_cast<int>(low < last);
    low_weight[i] = (1 - part) * static_cast<float>(low_inside);
    high_weight[i] = part * static_cast<float>(high_inside);
    lows[i] = low * low_inside;
    highs[i] = (low + 1) * high_inside;
  }
}

}  // namespace

void warp(const float* __restrict in, float* __restrict out, const ImageShape& shape, const Linear& m) {
  const auto height = static_cast<int>(shape.height), width = static_cast<int>(shape.width);
  const float cx = static_cast<float>(width - 1) / 2, cy = static_cast<float>(height - 1) / 2;
  Taps xs, ys;
  for (int y = 0; y < height; ++y) {
    const float dy = static_cast<float>(y) - cy;
    for (int first = 0; first < width; first += kRun) {
      const float dx = static_cast<float>(first) - cx;
      const int run = std::min(kRun, width - first);
      find_taps(xs, cx, m.xy * dy, m.xx, dx, run, width);
      find_taps(ys, cy, m.yy * dy, m.yx, dx, run, height);
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const float* plane = in + c * shape.plane();
        float* to = out + c * shape.plane() + y * width + first;
        for (int i = 0; i < run; ++i) {
          const float* upper = plane + ys.low[i] * width;
          const float* lower = plane + ys.high[i] * width;
          const float above = upper[xs.low[i]] * xs.low_weight[i] + upper[xs.high[i]] * xs.high_weight[i];
          const float below = lower[xs.low[i]] * xs.low_weight[i] + lower[xs.high[i]] * xs.high_weight[i];
          to[i] = above * ys.low_weight[i] + below * ys.high_weight[i];
        }
      }
    }
  }
}

}  // namespace cohort::data
