// Eight bits an element and one scale for 256, a power of two (as the E8M0 scales of the OCP microscaling formats, MX v1.0):
//   s = 2^e, the smallest with max|x| <= 127 s       q = round(x / s), to nearest, ties to even       C(x) = q s
//   rounding=stochastic: q = floor(x / s + u), u uniform in [0, 1): the mean of C(x) is x, and no residual is kept
// Bytes: 1 + n for a block of n <= 256 elements. Bound: |x - C(x)| <= s / 2 <= max|x| / 127, stochastic < s. Contraction, since the
// largest element of a block counts in |x|^2: 1 - 256 / 127^2.
// Why not min and max in floating point (Bagua's MinMaxUInt8): zero would not stay zero, so that rows of an embedding nobody looked up
// would drift, half-way ties can reach level -1, and x - C(x) would be rounded. A power of two makes x / s, q s and x - C(x) exact: what is
// sent and what is kept add up to the bit. It costs a bit of precision at most, of which small blocks give back more.
#include <bit>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/codec/blocks.h"
#include "cohort/codec/codec_row.h"

namespace cohort::codec {
namespace {

constexpr std::byte kNotFinite{255};  // in place of the exponent, as in E8M0: the block decodes to NaN

constexpr float scale_of(std::uint32_t exponent) { return std::bit_cast<float>(exponent << 23); }  // 2^(exponent - 127), 1 .. 254

COHORT_INLINE std::uint32_t largest_loop(const float* x, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7fffffffu;  // ordered as the numbers are, NaN above all
    most = magnitude > most ? magnitude : most;
  }
  return most;
}
std::uint32_t largest_plain(const float* x, std::size_t count) { return largest_loop(x, count); }
COHORT_FOR_AVX2 std::uint32_t largest_avx2(const float* x, std::size_t count) { return largest_loop(x, count); }
std::uint32_t largest(const float* x, std::size_t count) {
  return current_isa() == Isa::avx2 ? largest_avx2(x, count) : largest_plain(x, count);
}

// Bits of the smallest power of two s with most <= 127 s, from 2^-126 to 2^122: 127/64 is 1.984375, a mantissa of 0x7e0000.
constexpr std::uint32_t exponent_for(std::uint32_t most) {
  const std::uint32_t above = (most + (0x7fffffu - 0x7e0000u)) >> 23;
  return above > 7 ? above - 6 : 1;
}

struct Quantise {
  const float* x;
  std::byte* q;
  float inverse;
  COHORT_INLINE void operator()(std::size_t i) const {
    constexpr float kAlign = 0x1.8p23F;  // adding it leaves the rounded number in the lowest bits
    const auto bits = __builtin_bit_cast(std::uint32_t, x[i] * inverse + kAlign);
    q[i] = static_cast<std::byte>(bits & 0xffu);
  }
};
struct Dequantise {
  const std::byte* q;
  float* x;
  float scale;
  COHORT_INLINE void operator()(std::size_t i) const { x[i] = static_cast<float>(static_cast<std::int8_t>(q[i])) * scale; }
};

// floor(y), |y| <= 127.
constexpr int floor_of(float y) {
  const auto cut = static_cast<int>(y);
  return static_cast<float>(cut) > y ? cut - 1 : cut;
}

class Int8 final : public Codec {
 public:
  explicit Int8(const SpecValues& v)
      : stochastic_(v.word("rounding") == "stochastic"), feedback_(v.word("feedback") != "false" && !stochastic_) {
    if (stochastic_ && v.word("feedback") == "true")
      throw_failure(Kind::usage,
                    "int8: rounding=stochastic is right in the mean and keeps no residual; leave feedback out, or round to nearest");
  }
  Mix mix() const override { return Mix::hops; }
  bool feedback() const override { return feedback_; }
  bool unbiased() const override { return stochastic_; }
  double contraction(const Layout&) const override { return 1 - static_cast<double>(kBlock) / (127.0 * 127.0); }
  std::size_t bound(const Layout& layout, const Range& range) const override {
    std::size_t bytes = 0;
    for (const TensorPlace& tensor : layout.tensors) {
      const std::size_t count = tensor.range().overlap(range).count;
      bytes += count + (count + kBlock - 1) / kBlock;
    }
    return bytes;
  }

 private:
  // For every block its exponent, then its elements.
  std::size_t write(const Source& source, Bytes out) const override {
    const auto* const values = static_cast<const float*>(source.values.data);
    std::byte* to = out.data();
    for_each_block(source.layout, source.range, [&](const Block& block) {
      const float* const x = values + block.at;
      const std::uint32_t most = largest(x, block.count), exponent = exponent_for(most);
      const bool finite = most < 0x7f800000u;
      *to++ = finite ? static_cast<std::byte>(exponent) : kNotFinite;
      const float inverse = scale_of(254 - exponent);
      if (!finite)
        std::fill_n(to, block.count, std::byte{0});
      else if (stochastic_)
        draw(x, block, inverse, source.random.of(source.layout.tensors[block.tensor].name), to);
      else
        for_each_index(Quantise{x, to, inverse}, block.count);
      to += block.count;
    });
    return static_cast<std::size_t>(to - out.data());
  }
  static void draw(const float* x, const Block& block, float inverse, const Random& random, std::byte* to) {
    for (std::size_t i = 0; i < block.count; i += 4) {  // a block starts at a multiple of four
      const Words words = random.words((block.first + i) / 4);
      for (std::size_t k = 0; k < std::min<std::size_t>(4, block.count - i); ++k) {
        const float level = x[i + k] * inverse, low = static_cast<float>(floor_of(level));
        const bool up = static_cast<float>(words[k] >> 8) * 0x1p-24F < level - low;
        to[i + k] = static_cast<std::byte>(static_cast<std::int8_t>(static_cast<int>(low) + (up ? 1 : 0)));
      }
    }
  }

  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    check(target, payloads);
    auto* const values = static_cast<float*>(target.values.data);
    std::size_t offset = 0;
    for_each_block(target.layout, target.range, [&](const Block& block) {
      const std::size_t here = offset;
      offset += 1 + block.count;
      if (block.at < target.keep.first || block.at >= target.keep.last()) return;
      const auto decode = [&](std::size_t k, float* x) {
        const std::byte* const from = payloads[k].data() + here;
        if (*from == kNotFinite) return static_cast<void>(std::fill_n(x, block.count, std::numeric_limits<float>::quiet_NaN()));
        for_each_index(Dequantise{from + 1, x, scale_of(std::to_integer<std::uint32_t>(*from))}, block.count);
      };
      add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
    });
  }
  void check(const Target& target, std::span<const ConstBytes> payloads) const {
    const std::size_t size = bound(target.layout, target.range);
    for (const ConstBytes payload : payloads) {
      if (payload.size() != size) throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, not {}", spec(), payload.size(), size);
      std::size_t at = 0;
      for_each_block(target.layout, target.range, [&](const Block& block) {
        if (payload[at] == std::byte{0}) throw_failure(Kind::corrupt, "codec {}: byte {} of a payload is no scale", spec(), at);
        at += 1 + block.count;
      });
    }
  }
  const bool stochastic_, feedback_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{"int8",
                                 "eight bits an element, a power of two as scale of every 256 elements of a tensor",
                                 {{.name = "rounding",
                                   .type = Type::word,
                                   .doc = "to the nearest level, or to one of the two next to it by chance, so that the mean is right",
                                   .preset = "nearest",
                                   .words = {"nearest", "stochastic"}},
                                  {.name = "feedback",
                                   .type = Type::word,
                                   .doc = "keep what rounding to nearest loses, and send it later; auto: yes, if it rounds so",
                                   .preset = "auto",
                                   .words = {"auto", "true", "false"}}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Int8>(values); }

}  // namespace

extern const CodecRow row_int8{.name = "int8", .schema = schema, .make = build};

}  // namespace cohort::codec
