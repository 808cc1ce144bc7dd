// fp16 and bf16 are one codec over two formats of 16 bits: every element is rounded to nearest even and sent as it is.
//   sum=comm   payloads are added in 16 bits, rounded at each addition
//   sum=fp32   owners add in fp32 and round the sum once: the same bytes, one rounding instead of log2(n)
// No residual is kept: what rounding loses is a 2048th (fp16) or a 256th (bf16) of an element.
#pragma once
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/base/half.h"
#include "cohort/codec/blocks.h"
#include "cohort/codec/codec_row.h"

namespace cohort::codec {

// Payloads may lie at any address: memcpy is a load or a store.
template <class Format>
struct Narrow {
  const float* from;
  std::byte* to;
  COHORT_INLINE void operator()(std::size_t i) const {
    const std::uint16_t half = Format::narrow(from[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
};
template <class Format>
struct Widen {
  const std::byte* from;
  float* to;
  COHORT_INLINE void operator()(std::size_t i) const {
    std::uint16_t half = 0;
    std::memcpy(&half, from + 2 * i, 2);
    to[i] = Format::widen(half);
  }
};

// Format: Dtype type; double unit, half a unit in the last place of 1; narrow(float), widen(uint16_t).
template <class Format>
class Cast16 final : public Codec {
 public:
  explicit Cast16(const SpecValues& v) : mix_(v.word("sum") == "fp32" ? Mix::hops : Mix::add) {}
  Mix mix() const override { return mix_; }
  Dtype payload() const override { return Format::type; }
  bool feedback() const override { return false; }
  double contraction(const Layout&) const override { return 1 - Format::unit * Format::unit; }
  std::size_t bound(const Layout&, const Range& range) const override { return 2 * range.count; }

 private:
  // The gaps between tensors travel too: a payload is the range, element by element, which is what can be added as it is.
  std::size_t write(const Source& source, Bytes out) const override {
    const float* const from = static_cast<const float*>(source.values.data) + source.range.first;
    for_each_index(Narrow<Format>{from, out.data()}, source.range.count);
    return 2 * source.range.count;
  }
  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    for (const ConstBytes payload : payloads)
      if (payload.size() != 2 * target.range.count)
        throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes for {} elements", spec(), payload.size(), target.range.count);
    auto* const to = static_cast<float*>(target.values.data);
    const std::size_t before = target.keep.first - target.range.first;
    for (std::size_t at = 0; at < target.keep.count; at += kBlock) {
      const std::size_t count = std::min(kBlock, target.keep.count - at);
      const auto decode = [&](std::size_t k, float* sum) {
        for_each_index(Widen<Format>{payloads[k].data() + 2 * (before + at), sum}, count);
      };
      add_payloads(payloads.size(), count, target.scale, decode, to + at);
    }
  }
  const Mix mix_;
};

inline SpecParam sum_param() {
  return {.name = "sum",
          .type = SpecParam::Type::word,
          .doc = "where payloads are added: in their own 16 bits, or in fp32 by owners",
          .preset = "comm",
          .words = {"comm", "fp32"}};
}

}  // namespace cohort::codec
