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
struct Velocity {
  float* p;
  float* u;
  const float* before;
  const float* g;
  const float* e;
  double factor, momentum, unit, inverse;  // of e, m, of g, and 1 / unit
  COHORT_INLINE void operator()(std::size_t i) const {
    u[i] = static_cast<float>(momentum * static_cast<double>(before[i]) + static_cast<double>(g[i]) * unit);
    p[i] = static_cast<float>(static_cast<double>(u[i]) * inverse + static_cast<double>(e[i]) * factor);
  }
};
struct Nesterov {
  float* p;
  float* u;
  const float* before;
  const float* g;
  const float* e;
  double factor, momentum, unit, inverse;
  COHORT_INLINE void operator()(std::size_t i) const {
    const double own = static_cast<double>(g[i]);
    u[i] = static_cast<float>(momentum * (static_cast<double>(before[i]) + own * unit));
    p[i] = static_cast<float>(static_cast<double>(u[i]) * inverse + own + static_cast<double>(e[i]) * factor);
  }
};
struct Mask {
  float* u;
  const float* sent;
  COHORT_INLINE void operator()(std::size_t i) const { u[i] = sent[i] != 0 ? 0 : u[i]; }
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

template <class Pass>
void Feedback::velocity_pass(const float* g, double unit) {
  for_each_index(Pass{pending_.data(), next_.data(), velocity_.data(), g, committed_.data(), carry(), momentum_->factor, unit, 1 / unit},
                 pending_.size());
}

Piece Feedback::begin(const Piece& gradient, double weight, double unit) {
  check(gradient, pending_.size());
  if (!std::isfinite(weight) || weight < 0)
    throw_failure(Kind::usage, "feedback: a gradient of weight {}; learning rate / loss scale", weight);
  pending_weight_ = weight;
  const auto* const g = static_cast<const float*>(gradient.data);
  if (!momentum_) {
    for_each_index(Sum{pending_.data(), g, committed_.data(), carry()}, pending_.size());
  } else if (momentum_->nesterov) {
    velocity_pass<Nesterov>(g, unit);
  } else {
    velocity_pass<Velocity>(g, unit);
  }
  step_ = Step::begun;
  return piece(std::span(pending_));
}

void Feedback::note_sent(const Piece& sent) {
  check(sent, pending_.size());
  if (step_ != Step::begun) throw_failure(Kind::bug, "feedback: note_sent() without begin()");
  const auto* const values = static_cast<const float*>(sent.data);
  for_each_index(SubtractFrom{pending_.data(), values}, pending_.size());
  if (momentum_ && momentum_->masking) for_each_index(Mask{next_.data(), values}, next_.size());
  step_ = Step::sent;
}

void Feedback::keep(const ElementRange& range) {
  if (step_ != Step::sent) return;
  for (std::size_t i = range.first; i < range.last(); ++i)  // settle() flips no residual of weight 0
    pending_[i] = static_cast<float>(static_cast<double>(committed_[i]) * carry());
  if (momentum_) std::copy_n(velocity_.data() + range.first, range.count, next_.data() + range.first);
}

void Feedback::settle(bool committed) {
  const Step was = step_;
  step_ = Step::none;
  if (!committed || was == Step::none) return;
  if (was == Step::begun) throw_failure(Kind::bug, "feedback: a step is committed of which nothing was noted as sent");
  velocity_.swap(next_);
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
