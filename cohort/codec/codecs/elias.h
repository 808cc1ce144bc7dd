// Elias' gamma code of small signed numbers, most of them zero, as QSGD's paper has it: for every one that is not zero the gap to it, its
// sign and its magnitude.
//   gamma(k) = floor(log2 k) zeros, then k in binary: 2 floor(log2 k) + 1 bits, k >= 1
//   block    = gamma(zeros + 1) sign gamma(|code|) ..., and gamma(zeros + 1) for zeros up to the end, where there are some
// Bits lie in bytes from the lowest on. Owner: values. Threads: pure, any. Failure: elias_length() says 0 of bytes that no block writes.
#pragma once
#include <bit>
#include <cstring>
#include <utility>

#include "cohort/codec/codecs/pack.h"

namespace cohort::codec {

class BitWriter {
 public:
  BitWriter(std::byte* to, std::size_t most) : to_(to), most_(8 * most) {}
  void put(unsigned bits, int count) {
    if (used_ + static_cast<std::size_t>(count) > most_) full_ = true;
    for (int i = 0; !full_ && i < count; ++i, ++used_) {
      if (used_ % 8 == 0) to_[used_ / 8] = std::byte{0};
      to_[used_ / 8] |= static_cast<std::byte>(((bits >> i) & 1u) << (used_ % 8));
    }
  }
  void gamma(unsigned k) {
    const int log = std::bit_width(k) - 1;
    put(0, log);
    put(1, 1);
    put(k & ((1u << log) - 1), log);
  }
  bool full() const { return full_; }
  std::size_t bytes() const { return (used_ + 7) / 8; }

 private:
  std::byte* to_;
  std::size_t most_, used_ = 0;
  bool full_ = false;
};

class BitReader {
 public:
  explicit BitReader(ConstBytes from) : from_(from) {}
  unsigned bit() {
    if (at_ >= 8 * from_.size()) return static_cast<unsigned>(bad_ = true);
    const unsigned found = std::to_integer<unsigned>(from_[at_ / 8] >> (at_ % 8)) & 1u;
    ++at_;
    return found;
  }
  unsigned gamma() {
    int log = 0;
    while (bit() == 0)
      if (++log > 8) return static_cast<unsigned>(bad_ = true);  // 256, the longest gap, has 8
    unsigned k = 1u << log;
    for (int i = 0; i < log; ++i) k |= bit() << i;
    return k;
  }
  bool bad() const { return bad_; }
  // Only zeros are left of the last byte.
  bool ended() {
    while (!bad_ && at_ % 8 != 0)
      if (bit() != 0) return false;
    return !bad_;
  }
  std::size_t bytes() const { return at_ / 8; }

 private:
  ConstBytes from_;
  std::size_t at_ = 0;
  bool bad_ = false;
};

// The bytes written; 0 where they would be more than `most`: what lies there then means nothing.
inline std::size_t elias_encode(const Codes& codes, std::size_t count, std::byte* to, std::size_t most) {
  BitWriter out(to, most);
  unsigned zeros = 0;
  for (std::size_t i = 0; i < count && !out.full(); ++i) {
    if (codes[i] == 0) {
      ++zeros;
      continue;
    }
    out.gamma(std::exchange(zeros, 0) + 1);
    out.put(codes[i] < 0 ? 1 : 0, 1);
    out.gamma(static_cast<unsigned>(codes[i] < 0 ? -codes[i] : codes[i]));
  }
  if (zeros > 0) out.gamma(zeros + 1);
  return out.full() ? 0 : out.bytes();
}

// Bytes of the block that begins there; 0: none does. codes: written, unless null; magnitudes are at most `levels`.
inline std::size_t elias_decode(ConstBytes from, std::size_t count, int levels, std::int8_t* codes) {
  BitReader in(from);
  for (std::size_t at = 0; at < count;) {
    const std::size_t zeros = in.gamma() - 1;
    if (in.bad() || at + zeros > count) return 0;
    if (codes != nullptr) std::fill_n(codes + at, zeros, std::int8_t{0});
    at += zeros;
    if (at == count) break;
    const bool negative = in.bit() != 0;
    const unsigned magnitude = in.gamma();
    if (in.bad() || magnitude > static_cast<unsigned>(levels)) return 0;
    if (codes != nullptr) codes[at] = static_cast<std::int8_t>(negative ? -static_cast<int>(magnitude) : static_cast<int>(magnitude));
    ++at;
  }
  return in.ended() ? in.bytes() : 0;
}

}  // namespace cohort::codec
