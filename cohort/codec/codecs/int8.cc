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

#include "cohort/codec/codecs/blockwise.h"

namespace cohort::codec {
namespace {

constexpr std::byte kNotFinite{255};  // in place of the exponent, as in E8M0: the block decodes to NaN

constexpr float scale_of(std::uint32_t exponent) { return std::bit_cast<float>(exponent << 23); }  // 2^(exponent - 127), 1 .. 254

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

struct QuantiseByChance {
  const float* x;
  const std::uint32_t* words;
  std::byte* q;
  float inverse;
  COHORT_INLINE void operator()(std::size_t i) const {
    const float level = x[i] * inverse;
    const int cut = static_cast<int>(level), low = cut - (static_cast<float>(cut) > level ? 1 : 0);  // floor
    const bool up = static_cast<float>(static_cast<int>(words[i] >> 8)) * 0x1p-24F < level - static_cast<float>(low);
    q[i] = static_cast<std::byte>(static_cast<std::int8_t>(low + (up ? 1 : 0)));
  }
};

class Int8 final : public Blockwise {
 public:
  explicit Int8(const SpecValues& v)
      : stochastic_(v.word("rounding") == "stochastic"), feedback_(v.word("feedback") != "false" && !stochastic_) {
    if (stochastic_ && v.word("feedback") == "true")
      throw_failure(Kind::usage,
                    "int8: rounding=stochastic is right in the mean and keeps no residual; leave feedback out, or round to nearest");
  }
  bool feedback() const override { return feedback_; }
  bool unbiased() const override { return stochastic_; }
  double contraction(const Layout&) const override { return 1 - static_cast<double>(kBlock) / (127.0 * 127.0); }

 private:
  std::size_t block_bytes(std::size_t count) const override { return 1 + count; }
  void encode_block(const float* x, std::size_t count, const Draws& draws, std::byte* to) const override {
    const std::uint32_t most = largest_magnitude(x, count), exponent = exponent_for(most);
    const bool finite = most < kInfinity;
    *to++ = finite ? static_cast<std::byte>(exponent) : kNotFinite;
    if (!finite) return static_cast<void>(std::fill_n(to, count, std::byte{0}));
    const float inverse = scale_of(254 - exponent);
    if (!stochastic_) return for_each_index(Quantise{x, to, inverse}, count);
    Draws::Words words;  // NOLINT: written before it is read
    draws.words(words);
    for_each_index(QuantiseByChance{x, words.data(), to, inverse}, count);
  }
  bool is_block(const std::byte* from, std::size_t) const override { return *from != std::byte{0}; }
  void decode_block(const std::byte* from, std::size_t count, float* x) const override {
    if (*from == kNotFinite) return static_cast<void>(std::fill_n(x, count, std::numeric_limits<float>::quiet_NaN()));
    for_each_index(Dequantise{from + 1, x, scale_of(std::to_integer<std::uint32_t>(*from))}, count);
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
