// Numbers that are written down as a formula, and blocks whose gradients are such numbers.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace cohort::golden {

// Tensors on both sides of a block of measuring (256 elements), one of a single element, one that no bucket of the cases holds with others.
inline const std::vector<std::vector<std::int64_t>> kSizes = {{7}, {30, 50}, {1}, {513}, {16, 128}, {3000}, {256}, {5, 3, 11}};

// 24 bits of a number in [-1, 1): exact in float, so that nothing rounds before the engine does.
inline float number(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t x = (stream * 0x9E3779B97F4A7C15ULL) ^ (index + 0x632BE59BD9B4E019ULL);
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return static_cast<float>(static_cast<std::int64_t>((x ^ (x >> 31U)) >> 40U) - (1 << 23)) / static_cast<float>(1 << 23);
}

inline at::Tensor numbers(at::IntArrayRef sizes, std::uint64_t stream) {
  at::Tensor all = at::empty(sizes);
  float* const out = all.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < all.numel(); ++i) out[i] = number(stream, static_cast<std::uint64_t>(i));
  return all;
}

struct Block : torch::nn::Module {
  at::Tensor p;
  explicit Block(std::size_t i) : p(register_parameter("p", numbers(kSizes[i], 1000 + i))) {}
};

}  // namespace cohort::golden
