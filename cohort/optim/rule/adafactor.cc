// Adafactor (Shazeer and Stern 2018), in torch's form; a tensor of more than two dimensions is a row of matrices, over its last two:
//   f = t^beta2_decay,   row <- row + f (mean over columns of g^2 - row),   column <- column + f (mean over rows of g^2 - column)
//   v = row column / max(mean of row, eps1);   a tensor of one dimension:   v <- v + f (g^2 - v)
//   u = g / sqrt(max(v, eps1^2)),   a = max(eps2, RMS(w)) min(lr, 1 / sqrt(t)) / max(1, RMS(u) / d)
//   w <- (1 - lr weight_decay) w - a u
// Laws: v is exact where g^2 has rank one; with d = 1 no step moves w by more than max(eps2, RMS(w)) min(lr, 1 / sqrt(t)) in RMS. For an
// m x n matrix the state is m + n numbers.
// Sums are made in double, each in one order: those of a row block by block, as measure.h says, those of a column from the first row down.
#include <cmath>
#include <limits>
#include <numeric>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

// Of rows, columns and the matrices of which a tensor is made.
struct Matrices {
  std::size_t count = 1, rows = 1, columns = 1;
  explicit Matrices(std::span<const std::int64_t> shape)
      : rows(static_cast<std::size_t>(shape[shape.size() - 2])), columns(static_cast<std::size_t>(shape.back())) {
    for (const auto size : shape.first(shape.size() - 2)) count *= static_cast<std::size_t>(size);
  }
};

template <class T>
struct Square {  // of a tensor of one dimension
  T fresh;
  COHORT_INLINE void operator()(T&, T g, T& v) const { v += fresh * (g * g - v); }
};
template <class T>
struct Direction {
  T least, factor;  // v is factor times its second argument
  COHORT_INLINE T of(T g, T v) const {
    v *= factor;
    return g / std::sqrt(v < least ? least : v);
  }
};
template <class T>
struct DirectionAlone {
  Direction<T> direction;
  COHORT_INLINE void operator()(T& w, T g, T& v) const { w = direction.of(g, v); }
};
template <class T>
struct Update {
  Direction<T> direction;
  T keep, rate;
  COHORT_INLINE void operator()(T& w, T g, T& v) const { w = keep * w - rate * direction.of(g, v); }
};

template <class T>
COHORT_INLINE void add_row(const T* g, std::size_t count, double* sums) {
  for (std::size_t j = 0; j < count; ++j) sums[j] += static_cast<double>(g[j]) * static_cast<double>(g[j]);
}
template <class T>
void add_row_plain(const T* g, std::size_t count, double* sums) {
  add_row(g, count, sums);
}
template <class T>
COHORT_FOR_AVX2 void add_row_avx2(const T* g, std::size_t count, double* sums) {
  add_row(g, count, sums);
}

template <class T>
double squares_of(const T* row, std::size_t count, Dtype dtype) {
  double sum = 0;
  for (std::size_t at = 0; at < count; at += kMeasureBlock) sum += block_squares(row + at, std::min(kMeasureBlock, count - at), dtype);
  return sum;
}

double rms(const ExactSum& squares, std::size_t count) { return std::sqrt(squares.value() / static_cast<double>(count)); }

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const SpecValues& v)
      : lr_(v.real("lr")),
        beta2_decay_(v.real("beta2_decay")),
        eps1_(v.real("eps1")),
        eps2_(v.real("eps2")),
        d_(v.real("d")),
        decay_(v.real("weight_decay")) {}
  std::vector<std::string> state_names() const override { return {"row_var", "col_var", "variance"}; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    if (tensor.ndim() < 2) return {{"variance", tensor.shape, tensor.dtype}};
    StateSpec row{"row_var", tensor.shape, tensor.dtype}, column{"col_var", tensor.shape, tensor.dtype};
    row.shape.back() = 1;
    column.shape[column.shape.size() - 2] = 1;
    return {row, column};
  }
  Needs needs() const override { return {.grain = Grain::tensor}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  // The slice of row r of matrix m; its state is the factor of the columns.
  template <class T>
  struct Row {
    const Slice& whole;
    Matrices size;
    double least_mean;
    std::vector<double> mean{};  // of each matrix's factor of the rows
    void* columns = nullptr;

    Slice at(std::size_t m, std::size_t r) {
      Slice row = whole;
      const std::size_t first = (m * size.rows + r) * size.columns;
      row.param = static_cast<T*>(whole.param) + first;
      row.grad = static_cast<T*>(whole.grad) + first;
      columns = static_cast<T*>(whole.state[1]) + m * size.columns;
      row.state = std::span<void* const>(&columns, 1);
      row.count = size.columns;
      return row;
    }
    T factor(std::size_t m, std::size_t r) const {
      return static_cast<T>(static_cast<double>(static_cast<T*>(whole.state[0])[m * size.rows + r]) / std::max(mean[m], least_mean));
    }
  };

  // Both factors of one matrix, and the mean of that of its rows.
  template <class T>
  static double factorise(const Slice& s, const Matrices& size, std::size_t m, double fresh, double scale) {
    auto* const row_var = static_cast<T*>(s.state[0]) + m * size.rows;
    auto* const col_var = static_cast<T*>(s.state[1]) + m * size.columns;
    const T* g = static_cast<const T*>(s.grad) + m * size.rows * size.columns;
    const auto mix = [&](T& v, double squares, std::size_t count) {
      v += static_cast<T>(fresh) * (static_cast<T>(squares * scale * scale / static_cast<double>(count)) - v);
    };
    std::vector<double> columns(size.columns);
    double sum = 0;
    for (std::size_t r = 0; r < size.rows; ++r, g += size.columns) {
      current_isa() == Isa::avx2 ? add_row_avx2(g, size.columns, columns.data()) : add_row_plain(g, size.columns, columns.data());
      mix(row_var[r], squares_of(g, size.columns, s.dtype), size.columns);
      sum += static_cast<double>(row_var[r]);
    }
    for (std::size_t j = 0; j < size.columns; ++j) mix(col_var[j], columns[j], size.rows);
    return sum / static_cast<double>(size.rows);
  }

  struct Numbers {
    double fresh, eps1, keep, length;  // length: of a step whose direction has an RMS of at most d
  };
  Numbers numbers(const Slice& s, const StepInfo& info, double epsilon) const {
    const double lr = info.lr * s.lr_scale, t = static_cast<double>(info.step);
    ExactSum weights;
    add_squares(s.param, s.count, s.dtype, weights);
    return {real_power(t, beta2_decay_), eps1_ > 0 ? eps1_ : epsilon, 1 - lr * s.weight_decay,
            std::max(eps2_, rms(weights, s.count)) * std::min(lr, 1 / std::sqrt(t))};
  }
  double rate(const Numbers& n, const ExactSum& squares, std::size_t count) const {
    return n.length / std::max(1.0, rms(squares, count) / d_);
  }

  template <class T>
  void update_vector(const Slice& s, const StepInfo& info, const Numbers& n) const {
    StepInfo reading = info;
    reading.clear_grad = false;
    for_each_element<T, 1>(Square<T>{static_cast<T>(n.fresh)}, s, reading);
    const Direction<T> direction{static_cast<T>(n.eps1 * n.eps1), 1};
    ExactSum squares;
    add_squares_after<T, 1>(DirectionAlone<T>{direction}, s, info, squares);
    for_each_element<T, 1>(Update<T>{direction, static_cast<T>(n.keep), static_cast<T>(rate(n, squares, s.count))}, s, info);
  }
  template <class T>
  void update_matrices(const Slice& s, const StepInfo& info, const Numbers& n) const {
    const Matrices size(s.shape);
    Row<T> row{s, size, n.eps1};
    for (std::size_t m = 0; m < size.count; ++m) row.mean.push_back(factorise<T>(s, size, m, n.fresh, info.grad_scale));
    const auto direction = [&](std::size_t m, std::size_t r) { return Direction<T>{static_cast<T>(n.eps1 * n.eps1), row.factor(m, r)}; };
    ExactSum squares;
    for (std::size_t m = 0; m < size.count; ++m)
      for (std::size_t r = 0; r < size.rows; ++r) add_squares_after<T, 1>(DirectionAlone<T>{direction(m, r)}, row.at(m, r), info, squares);
    const T keep = static_cast<T>(n.keep), length = static_cast<T>(rate(n, squares, s.count));
    for (std::size_t m = 0; m < size.count; ++m)
      for (std::size_t r = 0; r < size.rows; ++r) for_each_element<T, 1>(Update<T>{direction(m, r), keep, length}, row.at(m, r), info);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Numbers n = numbers(s, info, static_cast<double>(std::numeric_limits<T>::epsilon()));
      s.shape.size() < 2 ? update_vector<T>(s, info, n) : update_matrices<T>(s, info, n);
    });
  }
  double lr_, beta2_decay_, eps1_, eps2_, d_, decay_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "adafactor",
      "second moments kept as factors for rows and columns, steps in proportion to the tensor: little memory",
      {lr_param("1e-2"),
       {.name = "beta2_decay",
        .type = Type::real,
        .doc = "step t takes t to this power of the new squares in",
        .preset = "-0.8",
        .high = 0},
       {.name = "eps1", .type = Type::real, .doc = "least root of a second moment; 0: the type's own precision", .preset = "0", .low = 0},
       {.name = "eps2", .type = Type::real, .doc = "least size of a tensor, for its step", .preset = "1e-3", .low = 0},
       {.name = "d", .type = Type::real, .doc = "root mean square to which a step's direction is clipped", .preset = "1", .low = 1},
       weight_decay_param("0", "shrinks w by lr times this")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Adafactor>(values); }

}  // namespace

extern const Rule row_adafactor{.name = "adafactor", .schema = schema, .make = build};

}  // namespace cohort::optim
