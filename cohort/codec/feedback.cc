#include "cohort/codec/feedback.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/codec/loops.h"

namespace cohort::codec {
namespace {

struct Sum {  // p = g + factor e, in double, rounded once: exact wherever a float can hold it
  float* p;
  const float* g;
  const float* e;
  double factor;
  COHORT_INLINE void operator()(std::size_t i) const {
    p[i] = static_cast<float>(static_cast<double>(g[i]) + static_cast<double>(e[i]) * factor);
  }
};
struct SubtractFrom {
  float* p;
  const float* sent;
  COHORT_INLINE void operator()(std::size_t i) const { p[i] -= sent[i]; }
};

void check(const Piece& piece, std::size_t count) {
  if (piece.dtype != Dtype::f32 || piece.device.kind != DeviceKind::cpu || piece.count != count)
    throw_failure(Kind::bug, "feedback: {} elements of {} where {} of f32 on the CPU are kept", piece.count, name_of(piece.dtype), count);
}

}  // namespace

Piece Feedback::begin(const Piece& gradient, double weight) {
  check(gradient, pending_.size());
  if (!std::isfinite(weight) || weight < 0)
    throw_failure(Kind::usage, "feedback: a gradient of weight {}; learning rate / loss scale", weight);
  const double factor = weight > 0 ? weight_ / weight : 0;
  for_each_index(Sum{pending_.data(), static_cast<const float*>(gradient.data), committed_.data(), factor}, pending_.size());
  pending_weight_ = weight;
  step_ = Step::begun;
  return piece(std::span(pending_));
}

void Feedback::note_sent(const Piece& sent) {
  check(sent, pending_.size());
  if (step_ != Step::begun) throw_failure(Kind::bug, "feedback: note_sent() without begin()");
  for_each_index(SubtractFrom{pending_.data(), static_cast<const float*>(sent.data)}, pending_.size());
  step_ = Step::sent;
}

void Feedback::keep(const ElementRange& range) {
  if (step_ != Step::sent) return;
  const double factor = pending_weight_ > 0 ? weight_ / pending_weight_ : 0;  // settle() flips no step of weight 0
  for (std::size_t i = range.first; i < range.first + range.count; ++i)
    pending_[i] = static_cast<float>(static_cast<double>(committed_[i]) * factor);
}

void Feedback::settle(bool committed) {
  const Step was = step_;
  step_ = Step::none;
  if (!committed || was == Step::none) return;
  if (was == Step::begun) throw_failure(Kind::bug, "feedback: a step is committed of which nothing was noted as sent");
  if (pending_weight_ == 0) return;  // nothing moved
  committed_.swap(pending_);
  weight_ = pending_weight_;
}

void Feedback::restore(std::span<const float> residual, double weight) {
  if (residual.size() != committed_.size())
    throw_failure(Kind::bug, "feedback: a residual of {} elements where {} are kept", residual.size(), committed_.size());
  std::copy(residual.begin(), residual.end(), committed_.begin());
  weight_ = weight;
  step_ = Step::none;
}

}  // namespace cohort::codec
