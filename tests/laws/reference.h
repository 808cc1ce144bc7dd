// The plain reference of the laws: what a collective must give, computed by one thread with the plain kernels in the canonical bracket.
#pragma once
#include <cstring>
#include <random>
#include <vector>

#include "cohort/collective/kernels/kernels.h"

namespace cohort::collective {

using Buffer = std::vector<std::byte>;

inline const std::vector<Dtype>& every_dtype() {
  static const std::vector<Dtype> all{Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64,     Dtype::i8,
                                      Dtype::u8,  Dtype::i32,  Dtype::i64, Dtype::boolean, Dtype::i16};
  return all;
}
inline const std::vector<Op>& every_op() {
  static const std::vector<Op> all{Op::sum, Op::average, Op::min, Op::max, Op::product};
  return all;
}

// Any bits at all for numbers (NaN and infinities among them), 0 or 1 for bool. The same for the same seed and rank.
inline Buffer random_input(Dtype dtype, std::size_t count, std::uint64_t seed, int rank) {
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(rank));
  Buffer bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = random() & (dtype == Dtype::boolean ? 0x0101010101010101u : ~0ull);
    std::memcpy(&bytes[i], &word, std::min<std::size_t>(8, bytes.size() - i));
  }
  return bytes;
}

inline Piece piece_of(Buffer& bytes, Dtype dtype) { return {bytes.data(), bytes.size() / size_of(dtype), dtype, Device::cpu}; }

inline Buffer reference_reduce(Dtype dtype, Op op, const std::vector<Buffer>& inputs, double pre = 1, double post = 1) {
  Buffer out(inputs[0].size());
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  void* const target = out.data();
  const double factor = op == Op::average ? post / static_cast<double>(inputs.size()) : post;
  runnable_kernels()[0].reduce({dtype, op == Op::average ? Op::sum : op, pre, factor}, sources, {&target, 1}, out.size() / size_of(dtype));
  return out;
}

}  // namespace cohort::collective
