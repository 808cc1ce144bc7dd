// For tests: one image through one transform.
#pragma once
#include <string_view>
#include <vector>

#include "cohort/data/transform.h"

namespace cohort::data {

inline constexpr ImageShape kTestShape{2, 7, 9};

// A set with one image of kTestShape: every pixel another value, none black.
inline const Dataset& test_set() {
  static const MemoryDataset set = [] {
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i < kTestShape.elements(); ++i) pixels.push_back(static_cast<std::uint8_t>(1 + (i * 37) % 200));
    return MemoryDataset({.shape = {kTestShape.channels, kTestShape.height, kTestShape.width}, .classes = 1}, "test", pixels, {0});
  }();
  return set;
}

// The image as `list` makes it; without normalise in [0, 1].
inline std::vector<float> made(std::string_view list, std::uint64_t draw = 0) {
  Scratch scratch;
  TransformScratch transform_scratch;
  std::vector<float> out(static_cast<std::size_t>(kTestShape.elements()));
  Transforms::parse(list, test_set()).make(test_set().sample(0, scratch).input, out.data(), kTestShape, Rng(draw), transform_scratch);
  return out;
}

inline double sum(const std::vector<float>& image) {
  double all = 0;
  for (const float value : image) all += static_cast<double>(value);
  return all;
}

}  // namespace cohort::data
