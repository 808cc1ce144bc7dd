// SM3-II (Anil, Gupta, Koren and Singer 2019): adagrad whose sums are kept for each index of each axis, not for each element.
//   g <- g + weight_decay w,   n = min over axes of the sum that covers the element, + g^2,   u = g / sqrt(n + 1e-30)
//   each sum <- max of n over the elements that it covers;   b <- momentum b + (1 - momentum) u,   w <- w - lr b
// A tensor of one dimension has a sum for each element: adagrad.
// Laws: for an m x n matrix the state is m + n numbers, beside the momentum's; each sum is at least the sum of g^2 of every element that
// it covers, so no step is longer than adagrad's.
#include <algorithm>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

constexpr std::size_t kMostAxes = 8;

template <class T>
struct Pass {
  T rate, decay, least, momentum, fresh;  // least: of the sums of the axes before the last, of this row
  COHORT_INLINE T step(T w, T g, T sum, T& n) const {
    g += decay * w;
    n = (sum < least ? sum : least) + g * g;
    return g / std::sqrt(n + static_cast<T>(1e-30));
  }
  COHORT_INLINE void operator()(T& w, T g, T& sum, T& n) const { w -= rate * step(w, g, sum, n); }
  COHORT_INLINE void operator()(T& w, T g, T& sum, T& n, T& b) const {
    b = momentum * b + fresh * step(w, g, sum, n);
    w -= rate * b;
  }
};

// The sums of all axes, and what becomes of them; rows are runs along the last one.
template <class T>
struct Sums {
  std::vector<T*> old{};
  std::vector<std::vector<T>> next{};
  std::vector<std::size_t> sizes{}, index{};  // index: of the row, in all axes but the last

  explicit Sums(const Slice& s) {
    for (std::size_t axis = 0; axis < std::max<std::size_t>(1, s.shape.size()); ++axis) {
      sizes.push_back(s.shape.empty() ? 1 : static_cast<std::size_t>(s.shape[axis]));
      old.push_back(static_cast<T*>(s.state[axis]));
      next.emplace_back(sizes.back());
    }
    index.resize(sizes.size() - 1);
  }
  T least() const {
    T found = std::numeric_limits<T>::infinity();
    for (std::size_t axis = 0; axis < index.size(); ++axis) found = std::min(found, old[axis][index[axis]]);
    return found;
  }
  void take(const std::vector<T>& row) {
    T most = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
      next.back()[j] = std::max(next.back()[j], row[j]);
      most = std::max(most, row[j]);
    }
    for (std::size_t axis = 0; axis < index.size(); ++axis) next[axis][index[axis]] = std::max(next[axis][index[axis]], most);
    for (std::size_t axis = index.size(); axis-- > 0 && ++index[axis] == sizes[axis];) index[axis] = 0;
  }
  void write() const {
    for (std::size_t axis = 0; axis < old.size(); ++axis) std::ranges::copy(next[axis], old[axis]);
  }
};

class Sm3 : public Optimizer {
 public:
  explicit Sm3(const SpecValues& v) : lr_(v.real("lr")), momentum_(v.real("momentum")), decay_(v.real("weight_decay")) {}
  std::vector<std::string> state_names() const override {
    std::vector<std::string> names;
    for (std::size_t axis = 0; axis < kMostAxes; ++axis) names.push_back("accumulator_" + std::to_string(axis));
    if (momentum_ > 0) names.emplace_back("momentum_buffer");
    return names;
  }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    if (tensor.ndim() > kMostAxes)
      throw_failure(Kind::usage, "sm3: {} has {} dimensions; it is for tensors of at most {}", tensor.name, tensor.ndim(), kMostAxes);
    const auto names = state_names();
    std::vector<StateSpec> all;
    for (std::size_t axis = 0; axis < std::max<std::size_t>(1, tensor.ndim()); ++axis) {
      cohort::Shape shape(tensor.ndim(), 1);
      if (!shape.empty()) shape[axis] = tensor.shape[axis];
      all.push_back({names[axis], shape, tensor.dtype});
    }
    if (momentum_ > 0) all.push_back({names.back(), tensor.shape, tensor.dtype});
    return all;
  }
  Needs needs() const override { return {.grain = Grain::tensor}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    Sums<T> sums(s);
    const std::size_t columns = sums.sizes.back();
    std::vector<T> n(columns);
    std::array<void*, 3> states{sums.old.back(), n.data(), nullptr};
    for (std::size_t first = 0; first < s.count; first += columns) {
      Slice row = s;
      row.param = static_cast<T*>(s.param) + first;
      row.grad = static_cast<T*>(s.grad) + first;
      row.count = columns;
      row.state = states;
      const Pass<T> pass{static_cast<T>(info.lr * s.lr_scale), static_cast<T>(s.weight_decay), sums.least(), static_cast<T>(momentum_),
                         static_cast<T>(1 - momentum_)};
      if (momentum_ > 0) states[2] = static_cast<T*>(s.state.back()) + first;
      momentum_ > 0 ? for_each_element<T, 3>(pass, row, info) : for_each_element<T, 2>(pass, row, info);
      sums.take(n);
    }
    sums.write();
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, momentum_, decay_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{"sm3",
                                 "adagrad with a sum for each row and column only: little memory, large embeddings",
                                 {lr_param("0.1"), share_param("momentum", "0.9", "share of the buffer kept"),
                                  weight_decay_param("0", "added to the gradient, times w")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Sm3>(values); }

}  // namespace

extern const Rule row_sm3{.name = "sm3", .schema = schema, .make = build};

}  // namespace cohort::optim
