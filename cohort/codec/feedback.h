// Feedback keeps what a codec did not send, and adds it to the next gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019).
//   p = g + e w' / w        send C(p)        e <- p - C(p), if the step is committed
// w is what a unit of the gradient moves a parameter by: learning rate / loss scale. e was left at w', so what is kept moves parameters
// as far as it would have then: the sum over steps of w C(p), plus w e, is the sum of w g. At w = 0 (the start of a warm-up) nothing
// moves, and e waits.
// The residual is a pair: the committed one, and the one of the step under way. settle() flips them; so a step that is called off leaves
// the residual as it was, and a step that is done again counts once. The gradient is not changed.
// Owner: who owns the bucket. Threads: one at a time. Failure: Kind::bug for calls out of order.
#pragma once
#include <vector>

#include "cohort/base/piece.h"

namespace cohort::codec {

class Feedback {
 public:
  explicit Feedback(std::size_t count) : committed_(count), pending_(count) {}

  Piece begin(const Piece& gradient, double weight);  // p: what to encode; valid until settle(). Again: the step is done again
  void note_sent(const Piece& sent);                  // what the payload of p decodes to
  void keep(const ElementRange& range);               // these count as if nothing had been sent: their update is left out
  void settle(bool committed);                        // once or more often, also where begin() was not called

  std::span<const float> residual() const { return committed_; }  // of the committed steps
  Piece values() { return piece(std::span(committed_)); }         // the same, to be saved and written: restore() without a copy
  void set_weight(double weight) { weight_ = weight; }
  double weight() const { return weight_; }                      // w', 0: no step was committed yet
  void restore(std::span<const float> residual, double weight);  // from a checkpoint

 private:
  std::vector<float> committed_, pending_;
  double weight_ = 0, pending_weight_ = 0;
  enum class Step { none, begun, sent } step_ = Step::none;
};

}  // namespace cohort::codec
