// Dynamic loss scale: what a loss is multiplied with before backward, so that small gradients do not vanish in 16 bits, and how it follows
// overflows. Micikevicius et al. 2017; the rules are those of torch and DeepSpeed, as rows of a table (scale_rules.cc):
//   LossScale scale = LossScale::parse("torch(init=65536)");
//   gradients of  loss * scale.value();                      // multiply them with 1 / value() before any use
//   scale.update(overflow);                                  // once a step: was a gradient inf or nan on any rank?
// The law of a step, with the row's constants (hysteresis h, window w):
//   overflow:  good = 0; the scale falls by `down` if the h overflows before a fall are used up; one at `min` is a failure.
//   otherwise: good += 1; when good reaches w the scale grows by `up`, good = 0 and h is full again (deepspeed with
//              consecutive_hysteresis: h is full again now). deepspeed counts from -1, so its first growth comes one step late.
// A growth that fp32 could not hold is not made. `none` is a scale of 1 that only counts. Everything that decides is in ScaleState: saved
// and restored, a run goes on with the same scales. Owner: values. Threads: one. Failure: Kind::usage for a spec; Kind::corrupt from
// update() for an overflow at the smallest scale: the state is as before the step. To add a rule: a row in scale_rules.cc, its law in
// loss_scale_test.cc.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"

namespace cohort::optim {

struct ScaleRule;  // scale_rule.h

// Eight-byte numbers only: it travels between ranks as it is. No rule reads `since` and `bad`; saved states have them.
struct ScaleState {
  double scale = 1;
  std::int64_t good = 0;     // steps without overflow since the last overflow or growth
  std::int64_t spare = 0;    // overflows until it falls
  std::int64_t since = 0;    // steps since the last change
  std::int64_t bad = 0;      // overflows since the last fall
  std::int64_t skipped = 0;  // overflows of the whole run
  bool operator==(const ScaleState&) const = default;
};

// "scale=0x1p+16 good=3 spare=2 since=3 bad=0 skipped=1": every bit, and readable. Back: Kind::corrupt naming what does not fit.
std::string to_text(const ScaleState& state);
ScaleState scale_state_of(std::string_view text);

class LossScale {
 public:
  static LossScale parse(std::string_view spec);  // "torch", "deepspeed(window=500)", "none" ..
  static std::vector<SpecSchema> schemas();       // for help pages

  double value() const { return state_.scale; }
  bool scales() const;                          // false: `none`
  bool dynamic() const { return window_ > 0; }  // it follows overflows: neither `none` nor `constant`
  void update(bool overflow);
  std::int64_t skipped() const { return state_.skipped; }
  const std::string& spec() const { return spec_; }  // canonical, every parameter spelled out: for checkpoints
  const ScaleState& state() const { return state_; }
  // saved_by: the spec() of who saved it. Another rule keeps the scale, inside its own limits, and the count of overflows, no more.
  void restore(const ScaleState& state, std::string_view saved_by);

 private:
  void fall();
  void grow();
  ScaleState fresh(double scale) const;
  bool falls_now();

  const ScaleRule* rule_ = nullptr;  // a row of the table: lives for ever
  double up_ = 1, down_ = 1, min_ = 0;
  std::int64_t window_ = 0, hysteresis_ = 1;
  bool consecutive_ = false;
  std::string spec_;
  ScaleState state_;
};

}  // namespace cohort::optim
