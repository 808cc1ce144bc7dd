// Gradients as matrices of low rank (PowerSGD: Vogels, Karimireddy, Jaggi 2019). M is the mean over the ranks of a tensor with n rows, the
// first dimension, and m columns, the product of the others; M_i is a rank's own. Q is what the last step ended with, drawn at first.
//   round 0   P = M orthonormal(Q)               each rank its M_i: sums of those are an all-reduce of r n elements
//   round 1   P^ = orthonormal(P)    Q = M^T P^   likewise, of r m elements
//   C(M) = P^ Q^T = P^ P^T M, M projected on r directions
// A rank's residual is M_i - P^ P^T M_i. Laws: 4 r (n + m) bytes; M is exact in one step where its rank is at most r; the error never is
// larger than M, and in the mean over draws of Q at most sqrt(1 - r / min(n, m)) of it. Columns of Q that carry nothing, as after a
// gradient of zeros, are drawn anew: they would stay zero. Tensors of one dimension, and those of which r (n + m) min_rate > n m, are sent
// as they are.
// A payload is fp32: P of every matrix, column by column; then Q of every matrix, and the elements of the others. A range has P and Q of
// the matrices that it cuts, whole.
#include <cstring>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/codec/blocks.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/matrix.h"

namespace cohort::codec {
namespace {

struct Matrix {
  std::size_t rows = 0, columns = 0;
};

class PowerSgd final : public Codec {
 public:
  explicit PowerSgd(const SpecValues& v) : rank_(static_cast<std::size_t>(v.integer("rank"))), rate_(v.real("min_rate")) {}
  Mix mix() const override { return Mix::add; }
  Dtype payload() const override { return Dtype::f32; }
  bool feedback() const override { return true; }
  bool exact() const override { return false; }
  int rounds() const override { return 2; }
  double contraction(const Layout& layout) const override {
    double least = 1;
    for (const TensorPlace& t : layout.tensors)
      if (const auto m = matrix(t))
        least = std::min(least, static_cast<double>(rank_) / static_cast<double>(std::min(m->rows, m->columns)));
    return least;
  }
  std::size_t bound(const Layout& layout, const Range& range) const override {
    return round_bytes(0, layout, range) + round_bytes(1, layout, range);
  }
  std::size_t round_bytes(int round, const Layout& layout, const Range& range) const override {
    std::size_t numbers = 0;
    for (const TensorPlace& t : layout.tensors) numbers += round == 0 ? left(t, range) : right(t, range);
    return 4 * numbers;
  }
  Shape memory(const TensorPlace& t) const override {
    const auto m = matrix(t);
    return m ? Shape{static_cast<std::int64_t>(rank_), static_cast<std::int64_t>(m->columns)} : Shape{};
  }
  void remember(const Layout& layout, ConstBytes payload, std::span<float> to) const override {
    std::size_t at = round_bytes(0, layout, layout.all()), place = 0;
    for (const TensorPlace& t : layout.tensors) {
      const std::size_t count = right(t, layout.all()), kept = memory_of(*this, t);
      if (kept > 0) std::memcpy(to.data() + place, payload.data() + at, 4 * kept);
      at += 4 * count;
      place += kept;
    }
  }

 private:
  // As many rows as the first dimension; none: it is sent as it is.
  std::optional<Matrix> matrix(const TensorPlace& t) const {
    if (t.shape.size() < 2 || t.shape[0] <= 0 || t.count == 0) return std::nullopt;
    const auto rows = static_cast<std::size_t>(t.shape[0]), columns = t.count / rows;
    const double sent = static_cast<double>(rank_) * static_cast<double>(rows + columns);
    if (rows * columns != t.count || sent * rate_ > static_cast<double>(t.count)) return std::nullopt;
    return Matrix{rows, columns};
  }
  // Numbers of the tensor in each round.
  std::size_t left(const TensorPlace& t, const Range& range) const {
    const auto m = matrix(t);
    return m && t.range().overlap(range).count > 0 ? rank_ * m->rows : 0;
  }
  std::size_t right(const TensorPlace& t, const Range& range) const {
    const std::size_t count = t.range().overlap(range).count;
    const auto m = matrix(t);
    return m && count > 0 ? rank_ * m->columns : count;
  }

  std::size_t write(const Source& source, Bytes out) const override {
    const auto* const values = static_cast<const float*>(source.values.data);
    std::size_t to = 0, before = 0, place = 0;
    for (const TensorPlace& t : source.layout.tensors) {
      const Range part = t.range().overlap(source.range);
      const auto m = matrix(t);
      const std::size_t kept = memory_of(*this, t), memory = std::exchange(place, place + kept);
      if (part.count == 0) continue;
      if (m && source.round == 0) {
        Columns q{m->columns, rank_};
        if (!source.memory.empty() && kept > 0) std::copy_n(source.memory.data() + memory, kept, q.values.begin());
        const Random fresh = source.random.of(t.name);
        orthonormalize(q, &fresh);
        put(product(values + t.first, m->rows, q), out, to);
      } else if (m) {
        Columns p = columns_at(source.before, before, m->rows);
        orthonormalize(p);
        put(transposed_product(values + t.first, m->columns, p), out, to);
      } else if (source.round == 1) {
        std::memcpy(out.data() + to, values + part.first, 4 * part.count);
        to += 4 * part.count;
      }
    }
    return to;
  }
  static void put(const Columns& columns, Bytes out, std::size_t& to) {
    for (const double v : columns.values) {
      const auto rounded = static_cast<float>(v);
      std::memcpy(out.data() + to, &rounded, 4);
      to += 4;
    }
  }
  Columns columns_at(ConstBytes from, std::size_t& at, std::size_t height) const {
    Columns columns{height, rank_};
    for (double& v : columns.values) {
      float x = 0;
      std::memcpy(&x, from.data() + at, 4);
      v = static_cast<double>(x);
      at += 4;
    }
    return columns;
  }

  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    for (const ConstBytes payload : payloads) check(target, payload);
    auto* const values = static_cast<float*>(target.values.data);
    std::size_t left_at = 0, right_at = round_bytes(0, target.layout, target.range);
    for (std::size_t t = 0; t < target.layout.tensors.size(); ++t) {
      const TensorPlace& tensor = target.layout.tensors[t];
      const Range part = tensor.range().overlap(target.range);
      const std::size_t first_left = std::exchange(left_at, left_at + 4 * left(tensor, target.range));
      const std::size_t first_right = std::exchange(right_at, right_at + 4 * right(tensor, target.range));
      if (tensor.range().overlap(target.keep).count == 0) continue;
      std::vector<Columns> p, q;
      if (const auto m = matrix(tensor))
        for (const ConstBytes payload : payloads) {
          std::size_t of_p = first_left, of_q = first_right;
          orthonormalize(p.emplace_back(columns_at(payload, of_p, m->rows)));
          q.push_back(columns_at(payload, of_q, m->columns));
        }
      for_each_block_of(target.layout, t, target.keep, [&](const Block& block) {
        const auto decode = [&](std::size_t k, float* x) {
          if (!p.empty()) return outer_product(p[k], q[k], block.first, block.count, x);
          std::memcpy(x, payloads[k].data() + first_right + 4 * (block.at - part.first), 4 * block.count);
        };
        add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
      });
    }
  }
  void check(const Target& target, ConstBytes payload) const {
    const std::size_t size = bound(target.layout, target.range);
    if (payload.size() != size) throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, not {}", spec(), payload.size(), size);
  }

  const std::size_t rank_;
  const double rate_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "powersgd",
      "every matrix as a product of two narrow ones, found by a step of the power method, which are added over the ranks",
      {{.name = "rank", .type = Type::integer, .doc = "columns of the narrow matrices", .preset = "2", .low = 1, .high = 256},
       {.name = "min_rate",
        .type = Type::real,
        .doc = "a matrix that would not take so many times fewer bytes is sent as it is",
        .preset = "2",
        .low = 1,
        .high = 1e6}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<PowerSgd>(values); }

}  // namespace

extern const CodecRow row_powersgd{.name = "powersgd", .schema = schema, .make = build};

}  // namespace cohort::codec
