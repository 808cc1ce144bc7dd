// A share of the elements, drawn anew in every step and the same on all ranks, so that values travel without places and are added on their
// way (Wangni, Wang, Liu, Zhang 2018; Stich, Cordonnier, Jaggi 2018).
//   C(x)_i = x_i for the chosen, else 0                    feedback=true: the rest stays in the residual; contraction: ratio, in the mean
//   C(x)_i = x_i / ratio for the chosen, else 0            feedback=false: unbiased, E |C(x) - x|^2 = (1 / ratio - 1) |x|^2
// Every element is chosen with probability ratio. A block that begins at element f of its tensor has floor(ratio (f + n) + phi) -
// floor(ratio f + phi) of them, phi drawn for the tensor: so every range knows how many it has, and which of the block is drawn without
// replacement (Floyd). All of that in whole numbers: ratio is rounded to a multiple of 2^-24.
// A payload is fp32: for every tensor one number, 0, or NaN if an element of the range is not finite (it may not be among the chosen), then
// the chosen in order: 4 + 4 ceil(ratio d) bytes for d elements.
#include <bitset>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/codec/blocks.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/draws.h"
#include "cohort/codec/measure.h"

namespace cohort::codec {
namespace {

using Chosen = std::bitset<kBlock>;
constexpr int kRatioBits = 24;

class Randomk final : public Codec {
 public:
  explicit Randomk(const SpecValues& v)
      : ratio_(static_cast<std::uint64_t>(std::llround(std::ldexp(v.real("ratio"), kRatioBits)))), feedback_(v.boolean("feedback")) {
    if (ratio_ == 0) throw_failure(Kind::usage, "randomk: of ratio={} nothing would be sent; 1e-7 is the least", v.real("ratio"));
  }
  Mix mix() const override { return Mix::add; }
  Dtype payload() const override { return Dtype::f32; }
  bool feedback() const override { return feedback_; }
  bool unbiased() const override { return !feedback_; }
  double contraction(const Layout&) const override { return std::ldexp(static_cast<double>(ratio_), -kRatioBits); }
  std::size_t bound(const Layout& layout, const Range& range) const override {
    std::size_t numbers = 0;
    for (const TensorPlace& t : layout.tensors)
      if (const std::size_t count = t.range().overlap(range).count; count > 0)
        numbers += 1 + ((ratio_ * count + (std::uint64_t{1} << kRatioBits) - 1) >> kRatioBits);
    return 4 * numbers;
  }

 private:
  // The draws of one tensor, a function of seed, step and name.
  struct Places {
    Random random;
    std::uint64_t ratio, phi;
    Places(const Random& step, const TensorPlace& t, std::uint64_t r)
        : random(step.of(t.name)), ratio(r), phi(random.words(UINT64_MAX)[0] >> (32 - kRatioBits)) {}
    std::uint64_t before(std::size_t place) const { return (ratio * place + phi) >> kRatioBits; }
    Chosen of(const Block& block) const {
      Chosen chosen;
      const std::size_t n = block.count, k = before(block.first + n) - before(block.first);
      if (k == 0) return chosen;
      if (k == n) return ~chosen >> (kBlock - n);
      std::array<std::uint32_t, kBlock> words;  // NOLINT: written before it is read
      draw_words(random, block.first, k, words.data());
      for (std::size_t j = n - k; j < n; ++j) {
        const std::size_t at = (std::uint64_t{words[j - (n - k)]} * (j + 1)) >> 32;
        chosen.set(chosen.test(at) ? j : at);
      }
      return chosen;
    }
  };

  std::size_t write(const Source& source, Bytes out) const override {
    const auto* const values = static_cast<const float*>(source.values.data);
    std::byte* to = out.data();
    for (std::size_t t = 0; t < source.layout.tensors.size(); ++t) {
      if (source.layout.tensors[t].range().overlap(source.range).count == 0) continue;
      const Places places(source.random, source.layout.tensors[t], ratio_);
      std::byte* const flag = std::exchange(to, to + 4);
      std::uint32_t most = 0;
      for_each_block_of(source.layout, t, source.range, [&](const Block& block) {
        const float* const x = values + block.at;
        most = std::max(most, largest_magnitude(x, block.count));
        each(places.of(block), [&](std::size_t i) {
          put(feedback_ ? x[i] : static_cast<float>(static_cast<double>(x[i]) / contraction(source.layout)), to);
          to += 4;
        });
      });
      put(most < kInfinity ? 0 : std::numeric_limits<float>::quiet_NaN(), flag);
    }
    return static_cast<std::size_t>(to - out.data());
  }

  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    check(target, payloads);
    auto* const values = static_cast<float*>(target.values.data);
    std::size_t at = 0;  // bytes of payloads before the tensor
    for (std::size_t t = 0; t < target.layout.tensors.size(); ++t) {
      const TensorPlace& tensor = target.layout.tensors[t];
      const Range part = tensor.range().overlap(target.range);
      if (part.count == 0) continue;
      const Places places(target.random, tensor, ratio_);
      const std::size_t before = places.before(part.first - tensor.first), flag = at;
      at += 4 * (1 + places.before(part.last() - tensor.first) - before);
      for_each_block_of(target.layout, t, target.keep, [&](const Block& block) {
        const Chosen chosen = places.of(block);
        const std::size_t first = flag + 4 * (1 + places.before(block.first) - before);
        const auto decode = [&](std::size_t k, float* x) {
          std::fill_n(x, block.count, number(payloads[k], flag));
          std::size_t from = first;
          each(chosen, [&](std::size_t i) { x[i] += number(payloads[k], std::exchange(from, from + 4)); });
        };
        add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
      });
    }
  }
  // As long as its numbers, or zeros behind them.
  void check(const Target& target, std::span<const ConstBytes> payloads) const {
    std::size_t size = 0;
    for (const TensorPlace& t : target.layout.tensors) {
      const Range part = t.range().overlap(target.range);
      if (part.count == 0) continue;
      const Places places(target.random, t, ratio_);
      size += 4 * (1 + places.before(part.last() - t.first) - places.before(part.first - t.first));
    }
    for (const ConstBytes payload : payloads) {
      if (payload.size() < size) throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, not {}", spec(), payload.size(), size);
      for (std::size_t at = size; at < payload.size(); ++at)
        if (payload[at] != std::byte{0}) throw_failure(Kind::corrupt, "codec {}: byte {} of a payload is behind its end", spec(), at);
    }
  }

  template <class Visit>
  static void each(const Chosen& chosen, const Visit& visit) {
    for (std::size_t i = chosen._Find_first(); i < kBlock; i = chosen._Find_next(i)) visit(i);
  }
  static void put(float x, std::byte* to) { std::memcpy(to, &x, 4); }
  static float number(ConstBytes payload, std::size_t at) {
    float x = 0;
    std::memcpy(&x, payload.data() + at, 4);
    return x;
  }

  const std::uint64_t ratio_;  // in units of 2^-24
  const bool feedback_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "randomk",
      "a share of the elements, drawn anew in every step, the same on all ranks",
      {{.name = "ratio", .type = Type::real, .doc = "share of the elements that is sent", .preset = "0.01", .low = 0, .high = 1},
       {.name = "feedback",
        .type = Type::boolean,
        .doc = "keep what is not sent, and send it later; false: send the chosen divided by the ratio, so that the mean is right",
        .preset = "true"}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Randomk>(values); }

}  // namespace

extern const CodecRow row_randomk{.name = "randomk", .schema = schema, .make = build};

}  // namespace cohort::codec
