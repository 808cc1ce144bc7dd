// Codes of 1, 2 or 4 bits, 8, 4 or 2 in a byte. Of n codes code e lies in byte e % m, m = ceil(n bits / 8), at bit `bits` (e / m): so that
// packing and unpacking are loops over bytes that vectors of any width run alike.
// Threads: pure, any. Failure: none.
#pragma once
#include <array>

#include "cohort/codec/codec.h"
#include "cohort/codec/loops.h"

namespace cohort::codec {

using Codes = std::array<std::int8_t, kBlock>;  // of a block; behind its elements: anything, but there are some

constexpr std::size_t packed_bytes(std::size_t count, int bits) {
  const auto in_byte = static_cast<std::size_t>(8 / bits);
  return (count + in_byte - 1) / in_byte;
}

template <int bits>
struct Pack {
  const std::int8_t* codes;
  std::byte* to;
  std::size_t stride;
  COHORT_INLINE void operator()(std::size_t i) const {
    unsigned byte = 0;
    for (int k = 0; k < 8 / bits; ++k)
      byte |= (static_cast<unsigned>(codes[static_cast<std::size_t>(k) * stride + i]) & ((1u << bits) - 1)) << (bits * k);
    to[i] = static_cast<std::byte>(byte);
  }
};
template <int bits>
struct Unpack {  // with the sign of the code's highest bit
  const std::byte* from;
  std::int8_t* codes;
  std::size_t stride;
  COHORT_INLINE void operator()(std::size_t i) const {
    for (int k = 0; k < 8 / bits; ++k) {
      const auto top = static_cast<std::int8_t>(static_cast<unsigned char>(from[i]) << (8 - bits - bits * k));
      codes[static_cast<std::size_t>(k) * stride + i] = static_cast<std::int8_t>(top >> (8 - bits));
    }
  }
};

// codes[count ..] of the last byte become zeros.
template <int bits>
void pack(Codes& codes, std::size_t count, std::byte* to) {
  const std::size_t bytes = packed_bytes(count, bits);
  for (std::size_t i = count; i < bytes * (8 / bits); ++i) codes[i] = 0;
  for_each_index(Pack<bits>{codes.data(), to, bytes}, bytes);
}
template <int bits>
void unpack(const std::byte* from, std::size_t count, Codes& codes) {
  const std::size_t bytes = packed_bytes(count, bits);
  for_each_index(Unpack<bits>{from, codes.data(), bytes}, bytes);
}

// 1 bit: the sign of a float. Unpacked it is 0 or -1, all ones: a mask.
struct SignOf {
  const float* x;
  std::int8_t* codes;
  COHORT_INLINE void operator()(std::size_t i) const { codes[i] = static_cast<std::int8_t>(__builtin_bit_cast(std::uint32_t, x[i]) >> 31); }
};
inline void pack_signs(const float* x, std::size_t count, std::byte* to) {
  Codes codes;  // NOLINT: written before it is read
  for_each_index(SignOf{x, codes.data()}, count);
  pack<1>(codes, count, to);
}
// x_i = negative where the sign is set, else other.
struct BySignBit {
  const std::int8_t* codes;
  float* x;
  std::uint32_t negative, other;
  COHORT_INLINE void operator()(std::size_t i) const {
    const auto mask = static_cast<std::uint32_t>(static_cast<std::int32_t>(codes[i]));
    x[i] = __builtin_bit_cast(float, (negative & mask) | (other & ~mask));
  }
};
inline void unpack_signs(const std::byte* from, std::size_t count, float negative, float other, float* x) {
  Codes codes;  // NOLINT: written before it is read
  unpack<1>(from, count, codes);
  for_each_index(BySignBit{codes.data(), x, __builtin_bit_cast(std::uint32_t, negative), __builtin_bit_cast(std::uint32_t, other)}, count);
}

}  // namespace cohort::codec
