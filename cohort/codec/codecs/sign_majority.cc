// The majority of signs (Bernstein, Wang, Azizzadenesheli, Anandkumar 2018: signSGD with majority vote):
//   C(x) = sign(x)      all ranks end with sign(sum over ranks of sign(x))
// Owners add the signs of ranks, and what they hand out is C of the sum: the vote. It is +1 or -1 whatever a gradient's size, a sum or a
// mean: the learning rate is what a step moves a parameter by, as in the paper, and momentum is the optimizer's. Owners of ZeRO take the
// vote of their part. A rank that turns all its signs has one vote: where all others agree, fewer than half the ranks change nothing.
// sign(0), and a tie, is drawn: always +1 would move parameters of zero gradient the same way in every step. A block of zeros stays one.
// No bound and no residual: the size of a gradient is not sent, so what is lost cannot be told (EF-signSGD is the codec `sign`).
// Bytes: 1 + ceil(n / 8) for a block of n <= 256.
#include <limits>

#include "cohort/codec/codecs/blockwise.h"
#include "cohort/codec/codecs/pack.h"

namespace cohort::codec {
namespace {

constexpr std::byte kZeros{0}, kSigns{1}, kNotFinite{255};

struct SignOrDraw {
  const float* x;
  const std::uint32_t* words;
  std::int8_t* codes;
  COHORT_INLINE void operator()(std::size_t i) const {
    const auto bits = __builtin_bit_cast(std::uint32_t, x[i]);
    codes[i] = static_cast<std::int8_t>((bits << 1) == 0 ? words[i] >> 31 : bits >> 31);
  }
};

class SignMajority final : public Blockwise {
 public:
  bool feedback() const override { return false; }
  bool votes() const override { return true; }
  double contraction(const Layout&) const override { return 0; }

 private:
  std::size_t block_bytes(std::size_t count) const override { return 1 + packed_bytes(count, 1); }
  void encode_block(const float* x, std::size_t count, const Draws& draws, std::byte* to) const override {
    const std::uint32_t most = largest_magnitude(x, count);
    *to = most == 0 ? kZeros : most < kInfinity ? kSigns : kNotFinite;
    if (*to++ != kSigns) return static_cast<void>(std::fill_n(to, packed_bytes(count, 1), std::byte{0}));
    if (std::none_of(x, x + count, [](float v) { return v == 0; })) return pack_signs(x, count, to);
    Draws::Words words;  // NOLINT: written before it is read
    draws.words(words);
    Codes codes;  // NOLINT: written before it is read
    for_each_index(SignOrDraw{x, words.data(), codes.data()}, count);
    pack<1>(codes, count, to);
  }
  bool is_block(const std::byte* from, std::size_t) const override { return *from <= kSigns || *from == kNotFinite; }
  void decode_block(const std::byte* from, std::size_t count, float* x) const override {
    if (*from == kSigns) return unpack_signs(from + 1, count, -1, 1, x);
    std::fill_n(x, count, *from == kZeros ? 0 : std::numeric_limits<float>::quiet_NaN());
  }
};

const SpecSchema& schema() {
  static const SpecSchema schema{"sign_majority", "one bit an element: the sign that most ranks have, whatever the gradient's size", {}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues&) { return std::make_unique<SignMajority>(); }

}  // namespace

extern const CodecRow row_sign_majority{.name = "sign_majority", .schema = schema, .make = build};

}  // namespace cohort::codec
