// A Schedule is a pure function from the step to the learning rate; nothing to save, nothing to advance.
//   constant                                    full
//   step(size=30, gamma=0.1)                    full * gamma^floor(s / size)                           torch StepLR
//   multi_step(milestones="30,60,80")           full * gamma^(milestones <= s)                         torch MultiStepLR
//   cosine(min=0)                               min + (full - min) (1 + cos(pi s' / T')) / 2           torch CosineAnnealingLR
//   polynomial(power=1, end=0)                  end + (full - end) (1 - s' / T')^power                 torch PolynomialLR
// s counts the updates made before this one, from 0: update number t (StepInfo::step) runs with lr(t - 1, ...), as in torch.
// full = base_lr scaled with the workers: `scale=linear` times n (Goyal et al. 2017), `sqrt` times sqrt(n) (Adam's habit), `none` as it is.
// Every shape takes `warmup` W, in steps, or, below 1, as a fraction of the total: for s < W the rate is multiplied with
//   f + (1 - f) s / W,   f = warmup_start: a factor of the full rate (torch LinearLR), or `base`: begin at the unscaled base_lr (Goyal).
// Unsaid, f is `base` where the rate is scaled and 0 where it is not. step and multi_step count from the very first update (Goyal);
// cosine and polynomial run from the end of the warm-up, s' = s - W and T' = total - W, and keep their last value after the total.
// LEGW (You et al. 2019), for batches k times as large: `scale=sqrt, warmup_start=0` with W in steps. Its warm-up of k times as many epochs
// is as many steps.
// Lengths below 1 are fractions of the total everywhere: step(size=0.3). Milestones too: "0.5, 0.75".
// Same bits on every machine (exact_math.h), but for a polynomial whose power is not whole: that asks libm.
// Owner: values. Threads: any. Failure: Kind::usage. To add a shape: a row in shapes.cc and its law in schedule_test.cc.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"

namespace cohort::optim {

struct Shape;  // shape.h

class Schedule {
 public:
  static Schedule parse(std::string_view spec);
  static std::vector<const SpecSchema*> schemas();  // for help pages

  double lr(std::int64_t step, std::int64_t total_steps, double base_lr, int workers = 1) const;

 private:
  Schedule() = default;
  enum class Scale : std::uint8_t { none, linear, sqrt };

  const Shape* shape_ = nullptr;  // a row of the table: lives for ever
  std::vector<double> numbers_;   // the shape's own parameters
  Scale scale_ = Scale::none;
  double warmup_ = 0;
  bool from_base_ = false;  // warm up from base_lr; otherwise from start_ times the full rate
  double start_ = 0;
};

}  // namespace cohort::optim
