// For tests: layouts, values, and a codec's way there and back in ordinary vectors.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cohort/codec/codec.h"

namespace cohort::codec {

inline float normal(std::mt19937& random) { return static_cast<float>(std::normal_distribution<double>()(random)); }

// Tensors of these sizes, each on a 64-byte boundary, and called t0, t1, ...
inline Layout layout_of(std::initializer_list<std::size_t> sizes) {
  Layout layout;
  for (const std::size_t count : sizes) {
    layout.tensors.push_back({"t" + std::to_string(layout.tensors.size()), layout.count, count});
    layout.count = round_up(layout.count + count, 16);
  }
  return layout;
}

// Noise in the tensors, of magnitudes that differ by tensor; zeros between them.
inline std::vector<float> noise(const Layout& layout, unsigned seed) {
  std::vector<float> values(layout.count);
  std::mt19937 random(seed);
  for (const TensorPlace& t : layout.tensors)
    for (std::size_t i = 0; i < t.count; ++i) values[t.first + i] = std::ldexp(normal(random), static_cast<int>(t.name.back() % 5) - 2);
  return values;
}

using Buffer = std::vector<std::byte>;
inline Piece whole(const std::vector<float>& values) { return piece(std::span(values)); }

inline Buffer encoded(const Codec& codec, const Layout& layout, const std::vector<float>& values, Range range, Random random = {}) {
  Buffer out(codec.bound(layout, range));
  out.resize(codec.encode({.layout = layout, .range = range, .values = whole(values), .random = random}, out));
  return out;
}
inline Buffer encoded(const Codec& codec, const Layout& layout, const std::vector<float>& values) {
  return encoded(codec, layout, values, layout.all());
}

// `start` is what lies in memory before.
inline std::vector<float> absorbed(const Codec& codec, const Layout& layout, const std::vector<Buffer>& payloads, Range range,
                                   double scale = 1, float start = 0, Random random = {}) {
  std::vector<float> out(range.count, start);
  const std::vector<ConstBytes> spans(payloads.begin(), payloads.end());
  codec.absorb({.layout = layout, .range = range, .keep = range, .values = whole(out), .scale = scale, .random = random}, spans);
  return out;
}

// C(x)
inline std::vector<float> sent(const Codec& codec, const Layout& layout, const std::vector<float>& values, Random random = {}) {
  return absorbed(codec, layout, {encoded(codec, layout, values, layout.all(), random)}, layout.all(), 1, 0, random);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace cohort::codec
