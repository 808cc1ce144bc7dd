// The largest elements of the mean, found by a count sketch (Charikar, Chen, Farach-Colton 2002; Sketched-SGD: Ivkin et al. 2019).
//   round 0   S_r[h_r(i)] += s_r(i) x_i     r = 1 .. rows, h_r(i) one of c places, s_r(i) a sign, drawn anew in every step
//   recover   x~_i = median over r of s_r(i) S_r[h_r(i)]; I: the k = max(1, floor(ratio d)) largest |x~_i| (equal ones: the first)
//   round 1   x_i of i in I, in order
//   C(x)_i = x_i where i is in I, else 0
// A sketch is linear, S(a) + S(b) = S(a + b), so ranks add theirs on the way and all find the same I, which is that of the sum: places
// need not travel. The values are exact, so what is not sent stays in the residual to the bit. topk sends what is large on a rank; this,
// what is large on all together. No bound: elements that meet large ones in two rows of three look large, about 1.5 d (k / c)^2 of them,
// and take the place of some that are; those stay in the residual and come later. As many as are right where width^2 ratio is 1.5.
// Bytes: 4 (rows c + 1 + k) for d elements, c = max(1, floor(width k)), for any number of ranks. Where that is no less than 4 d, the
// tensor is sent as it is. A payload is fp32: the sketches of all tensors; then for every tensor 0, or NaN if an element is not finite,
// and the values.
#include <cstring>
#include <limits>

#include "cohort/codec/codecs/entries.h"
#include "cohort/codec/draws.h"
#include "cohort/codec/measure.h"

namespace cohort::codec {
namespace {

constexpr std::size_t kWords = 4;  // random ones of an element, one for each row; the last is not used

class Sketch final : public Codec {
 public:
  explicit Sketch(const SpecValues& v) : ratio_(v.real("ratio")), width_(v.real("width")), rows_(v.word("rows") == "1" ? 1 : 3) {}
  Mix mix() const override { return Mix::add; }
  Dtype payload() const override { return Dtype::f32; }
  bool feedback() const override { return true; }
  int rounds() const override { return 2; }
  double contraction(const Layout&) const override { return 0; }
  std::size_t bound(const Layout& layout, const Range& range) const override {
    return round_bytes(0, layout, range) + round_bytes(1, layout, range);
  }
  std::size_t round_bytes(int round, const Layout& layout, const Range& range) const override {
    std::size_t numbers = 0;
    for (const TensorPlace& t : layout.tensors) numbers += round == 0 ? sketched(t, range) : sent(t, range);
    return 4 * numbers;
  }

 private:
  std::size_t chosen(const TensorPlace& t) const {
    return std::min(t.count, std::max<std::size_t>(1, static_cast<std::size_t>(ratio_ * static_cast<double>(t.count))));
  }
  std::size_t places(const TensorPlace& t) const {
    return std::max<std::size_t>(1, static_cast<std::size_t>(width_ * static_cast<double>(chosen(t))));
  }
  bool whole(const TensorPlace& t) const { return rows_ * places(t) + 1 + chosen(t) >= t.count; }  // it is sent as it is
  // Numbers of the tensor in each round.
  std::size_t sketched(const TensorPlace& t, const Range& range) const {
    return whole(t) || t.range().overlap(range).count == 0 ? 0 : rows_ * places(t);
  }
  std::size_t sent(const TensorPlace& t, const Range& range) const {
    const std::size_t count = t.range().overlap(range).count;
    return whole(t) || count == 0 ? count : 1 + chosen(t);
  }

  // visit(i, row, place, sign) for every element and row.
  template <class Visit>
  void each(const TensorPlace& t, const Random& random, const Visit& visit) const {
    const Random own = random.of(t.name);
    const std::size_t width = places(t);
    std::array<std::uint32_t, kWords * kBlock> words;  // NOLINT: written before it is read
    for (std::size_t first = 0; first < t.count; first += kBlock) {
      const std::size_t count = std::min(kBlock, t.count - first);
      draw_words(own, kWords * first, kWords * count, words.data());
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t r = 0; r < rows_; ++r) {
          const std::uint32_t word = words[kWords * i + r];
          visit(first + i, r, r * width + ((std::uint64_t{word} * width) >> 32), (word & 1u) != 0 ? -1.0F : 1.0F);
        }
    }
  }
  // I, ascending.
  std::vector<std::uint32_t> recover(const TensorPlace& t, const Random& random, const std::byte* sums) const {
    std::vector<float> sketch(rows_ * places(t)), estimates(t.count);
    std::memcpy(sketch.data(), sums, 4 * sketch.size());
    std::array<float, 3> rows{};
    each(t, random, [&](std::size_t i, std::size_t r, std::size_t place, float sign) {
      rows[r] = sign * sketch[place];
      if (r + 1 == rows_) estimates[i] = rows_ == 1 ? rows[0] : median(rows);
    });
    const Threshold least = largest(estimates.data(), t.count, chosen(t));
    std::vector<std::uint32_t> found;
    std::size_t ties = least.ties;
    for (std::size_t i = 0; i < t.count; ++i) {
      const std::uint32_t m = magnitude(estimates[i]);
      if (m > least.least || (m == least.least && ties > 0 && ties-- > 0)) found.push_back(static_cast<std::uint32_t>(i));
    }
    return found;
  }
  static float median(const std::array<float, 3>& x) { return std::max(std::min(x[0], x[1]), std::min(std::max(x[0], x[1]), x[2])); }

  std::size_t write(const Source& source, Bytes out) const override {
    std::byte* to = out.data();
    const std::byte* before = source.before.data();
    for (const TensorPlace& t : source.layout.tensors) {
      if (t.count > UINT32_MAX) throw_failure(Kind::usage, "codec {}: {} has {} elements, 2^32 - 1 are the most", spec(), t.name, t.count);
      const Range part = t.range().overlap(source.range);
      const auto* const x = static_cast<const float*>(source.values.data);
      if (part.count == 0) continue;
      if (whole(t)) {
        if (source.round == 1) to = put(x + part.first, part.count, to);
      } else if (source.round == 0) {
        std::vector<float> sketch(rows_ * places(t));
        each(t, source.random, [&](std::size_t i, std::size_t, std::size_t place, float sign) { sketch[place] += sign * x[t.first + i]; });
        to = put(sketch.data(), sketch.size(), to);
      } else {
        const float flag = largest_magnitude(x + t.first, t.count) < kInfinity ? 0 : std::numeric_limits<float>::quiet_NaN();
        to = put(&flag, 1, to);
        for (const std::uint32_t i : recover(t, source.random, before)) to = put(x + t.first + i, 1, to);
        before += 4 * sketched(t, source.range);
      }
    }
    return static_cast<std::size_t>(to - out.data());
  }
  static std::byte* put(const float* x, std::size_t count, std::byte* to) {
    return static_cast<std::byte*>(std::memcpy(to, x, 4 * count)) + 4 * count;
  }

  // What one payload says of a tensor: I and the values, or no I and all of them.
  struct Found {
    std::vector<std::uint32_t> places;
    const std::byte* numbers = nullptr;
    float number(std::size_t i) const { return std::bit_cast<float>(word_at(numbers + 4 * i)); }
  };
  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    const std::size_t size = bound(target.layout, target.range);
    for (const ConstBytes payload : payloads)
      if (payload.size() != size) throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, not {}", spec(), payload.size(), size);
    auto* const values = static_cast<float*>(target.values.data);
    std::size_t at_sketch = 0, at_values = round_bytes(0, target.layout, target.range);
    for (std::size_t t = 0; t < target.layout.tensors.size(); ++t) {
      const TensorPlace& tensor = target.layout.tensors[t];
      const std::size_t sketch = std::exchange(at_sketch, at_sketch + 4 * sketched(tensor, target.range));
      const std::size_t numbers = std::exchange(at_values, at_values + 4 * sent(tensor, target.range));
      if (tensor.range().overlap(target.keep).count == 0) continue;
      std::vector<Found> found(payloads.size());
      for (std::size_t k = 0; k < payloads.size(); ++k) {
        found[k].numbers = payloads[k].data() + numbers;
        if (!whole(tensor)) found[k].places = recover(tensor, target.random, payloads[k].data() + sketch);
      }
      const std::size_t first = tensor.range().overlap(target.range).first - tensor.first;
      for_each_block_of(target.layout, t, target.keep, [&](const Block& block) {
        const auto decode = [&](std::size_t k, float* x) { decode_block(found[k], whole(tensor), block.first, first, block.count, x); };
        add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
      });
    }
  }
  // Elements [at, at + count) of a tensor; one that is sent as it is begins at `first`.
  static void decode_block(const Found& found, bool whole, std::size_t at, std::size_t first, std::size_t count, float* x) {
    if (whole) return static_cast<void>(std::memcpy(x, found.numbers + 4 * (at - first), 4 * count));
    std::fill_n(x, count, found.number(0));
    auto i = static_cast<std::size_t>(std::lower_bound(found.places.begin(), found.places.end(), at) - found.places.begin());
    for (; i < found.places.size() && found.places[i] < at + count; ++i) x[found.places[i] - at] += found.number(1 + i);
  }

  const double ratio_, width_;
  const std::size_t rows_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "sketch",
      "the largest elements of the sum over the ranks, which a count sketch finds, without their places",
      {{.name = "ratio", .type = Type::real, .doc = "share of a tensor's elements that is sent", .preset = "0.001", .low = 0, .high = 1},
       {.name = "width",
        .type = Type::real,
        .doc = "places in a row of the sketch for each of them",
        .preset = "20",
        .low = 0.1,
        .high = 1000},
       {.name = "rows", .type = Type::word, .doc = "of the sketch; of three the median counts", .preset = "3", .words = {"1", "3"}}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Sketch>(values); }

}  // namespace

extern const CodecRow row_sketch{.name = "sketch", .schema = schema, .make = build};

}  // namespace cohort::codec
