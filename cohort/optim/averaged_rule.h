// A rule that follows another one (`of`) and keeps an average of the parameters beside them, as one more state of every tensor: cut, saved,
// carried and resharded as the others. Training goes on with the parameters; who evaluates takes the averages in their place
// (train/loop/averaged_weights.h).
//   a <- k a + (1 - k) w, after w was updated;   k: of the step, what rules derived from this say
// Owner: a rule of the table. Threads: as Optimizer. Failure: of the rule that it follows.
#pragma once
#include <algorithm>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {

inline constexpr std::string_view kAverageState = "average";

class AveragedRule : public Optimizer {
 public:
  explicit AveragedRule(const SpecValues& v) : inner_(make(followed(v))) {
    const auto states = inner_->state_names();
    if (std::ranges::find(states, kAverageState) != states.end())
      throw_failure(Kind::usage, "of={}: it keeps an average itself; of= takes another rule", inner_->spec());
  }
  std::vector<std::string> state_names() const override {
    auto names = inner_->state_names();
    names.emplace_back(kAverageState);
    return names;
  }
  double initial_state(std::size_t index) const override { return index + 1 < state_names().size() ? inner_->initial_state(index) : 0; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    auto specs = inner_->state(tensor);
    specs.push_back({std::string(kAverageState), tensor.shape, tensor.dtype});
    return specs;
  }
  Needs needs() const override { return inner_->needs(); }
  bool watches(std::int64_t step) const override { return inner_->watches(step); }
  double default_lr() const override { return inner_->default_lr(); }
  double default_weight_decay() const override { return inner_->default_weight_decay(); }
  void prepare(Side& side) override;

 protected:
  virtual double share_kept(std::int64_t step) const = 0;  // k; of the first step 0

 private:
  template <class T>
  struct Pass {
    T keep, fresh;
    COHORT_INLINE void operator()(T& w, T, T& a) const { a = keep * a + fresh * w; }
  };
  static std::string followed(const SpecValues& v);
  static Slice inner_slice(const Slice& s) {
    Slice inner = s;
    inner.state = s.state.first(s.state.size() - 1);
    return inner;
  }
  void add_sums(int round, const Slice& s, const StepInfo& info, std::span<ExactSum> sums) const override {
    inner_->measure(round, inner_slice(s), info, sums);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    inner_->update(inner_slice(s), info);
    const double keep = share_kept(info.step);
    Slice average = s;
    average.state = s.state.last(1);
    StepInfo reading = info;
    reading.clear_grad = false;
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (keep < 1) for_each_element<T, 1>(Pass<T>{static_cast<T>(keep), static_cast<T>(1 - keep)}, average, reading);
    });
  }
  std::unique_ptr<Optimizer> inner_;
};

// Whether a rule with this spec keeps averages that are to be evaluated, and predicted with, in place of the parameters.
bool evaluates_average(std::string_view spec);

// The parameters that such rules share.
std::vector<SpecParam> averaged_params();

}  // namespace cohort::optim
