// Feedback keeps what a codec did not send, and adds it to the next gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019).
//   p = g + e w' / w        send C(p)        e <- p - C(p), if the step is committed
// w is what a unit of the gradient moves a parameter by: learning rate / loss scale. e was left at w', so what is kept moves parameters
// as far as it would have then: the sum over steps of w C(p), plus w e, is the sum of w g. At w = 0 (the start of a warm-up) nothing
// moves, and e waits.
// With momentum (deep gradient compression: Lin, Han, Mao, Wang, Dally 2018) what is added up is the velocity of this rank's gradients:
//   u = m u + g        p = u + e w' / w        send C(p)        e <- p - C(p)        u <- 0 where C(p) is not 0, with masking
//   nesterov: u = m (u + g)        p = u + g + e w' / w
// u is kept without the loss scale: it moves a parameter by the rate of the step it is sent in, as the velocity of SGD does.
// The residual is a pair: the committed one, and the one of the step under way. settle() flips them; so a step that is called off leaves
// the residual as it was, and a step that is done again counts once. The gradient is not changed.
// Owner: who owns the bucket. Threads: one at a time. Failure: Kind::bug for calls out of order.
#pragma once
#include <vector>

#include "cohort/codec/codec.h"

namespace cohort::codec {

class Feedback {
 public:
  explicit Feedback(std::size_t count, const std::optional<Momentum>& momentum = {})
      : committed_(count), pending_(count), momentum_(momentum), velocity_(momentum ? count : 0), next_(velocity_.size()) {}

  // p: what to encode; valid until settle(). Again: the step is done again. unit: the part of the weight that is no rate, 1 / loss scale.
  Piece begin(const Piece& gradient, double weight, double unit = 1);
  void note_sent(const Piece& sent);     // what the payload of p decodes to
  void keep(const ElementRange& range);  // these count as if nothing had been sent: their update is left out
  void settle(bool committed);           // once or more often, also where begin() was not called

  std::span<const float> residual() const { return committed_; }  // of the committed steps
  Piece values() { return piece(std::span(committed_)); }         // the same, to be saved and written: restore() without a copy
  Piece velocity() { return piece(std::span(velocity_)); }        // u, likewise; nothing without momentum
  void set_weight(double weight) { weight_ = weight; }
  double weight() const { return weight_; }                      // w', 0: no step was committed yet
  void restore(std::span<const float> residual, double weight);  // from a checkpoint

 private:
  template <class Pass>
  void velocity_pass(const float* g, double unit);
  double carry() const { return pending_weight_ > 0 ? weight_ / pending_weight_ : 0; }  // w' / w

  std::vector<float> committed_, pending_;
  const std::optional<Momentum> momentum_;
  std::vector<float> velocity_, next_;  // of the committed steps, and of the one under way
  double weight_ = 0, pending_weight_ = 0;
  enum class Step { none, begun, sent } step_ = Step::none;
};

}  // namespace cohort::codec
