// Random numbers by counter: number i of a stream is a function of (seed, step, stream, i), so bits repeat, whichever thread draws them and
// however tensors are grouped and cut. Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011), the generator of torch on GPUs.
// Owner: values. Threads: any. Failure: none. Changing a line changes every run with a stochastic codec: random_test.cc pins the values.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace cohort::codec {

using Words = std::array<std::uint32_t, 4>;

constexpr Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0], b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9u;  // the golden ratio ..
    key1 += 0xBB67AE85u;  // .. and sqrt(3) - 1
  }
  return counter;
}

class Random {
 public:
  constexpr Random() : Random(0, 0) {}
  // rank: ranks draw different numbers, or their errors would add up instead of levelling out. The key is the seed; steps and ranks have
  // keys of their own by one more Philox.
  constexpr Random(std::uint64_t seed, std::uint64_t step, std::uint32_t rank = 0)
      : key_(philox({low(step), high(step), rank, 0}, low(seed), high(seed))) {}

  // The stream of one tensor, by its name: no bucket's number is in it. FNV-1a, 64 bits.
  constexpr Random of(std::string_view tensor) const {
    Random own = *this;
    own.stream_ = 0xcbf29ce484222325ULL;
    for (const char c : tensor) own.stream_ = (own.stream_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return own;
  }

  // Four numbers, for the elements 4 i .. 4 i + 3.
  constexpr Words words(std::uint64_t i) const { return philox({low(i), high(i), low(stream_), high(stream_)}, key_[0], key_[1]); }
  constexpr float uniform(std::uint64_t i) const { return static_cast<float>(words(i / 4)[i % 4] >> 8) * 0x1p-24F; }  // [0, 1)

 private:
  static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
  Words key_;
  std::uint64_t stream_ = 0;
};

}  // namespace cohort::codec
