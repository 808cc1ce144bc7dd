// Random numbers that are the same on every platform, compiler and number of threads.
// A Rng is splitmix64 (Steele, Lea, Flood 2014): state += golden ratio, output = mix(state). Its start is a hash of (seed, a, b), so that
// every (seed, epoch, sample) has a stream of its own and nothing needs to be drawn in order.
// Owner: values. Threads: one per Rng. Failure: none. Changing a line here changes every training run: plan_test.cc pins the values.
#pragma once
#include <cstdint>

namespace cohort::data {

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

class Rng {
 public:
  explicit constexpr Rng(std::uint64_t seed, std::uint64_t a = 0, std::uint64_t b = 0)
      : state_(mix(mix(mix(seed + kGolden) + a + kGolden) + b + kGolden)) {}

  constexpr std::uint64_t next() { return mix(state_ += kGolden); }

  // Uniform in [0, n), n > 0, without bias (Lemire 2019: the high half of a product, the rare uneven part drawn again).
  constexpr std::uint64_t below(std::uint64_t n) {
    Wide product = Wide{next()} * n;
    if (static_cast<std::uint64_t>(product) < n) {
      const std::uint64_t uneven = (0 - n) % n;
      while (static_cast<std::uint64_t>(product) < uneven) product = Wide{next()} * n;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

  // Whole numbers low..high, both ends included.
  constexpr std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }

  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t state_;
};

}  // namespace cohort::data
