// The outer optimizer of diloco and streaming_diloco: SGD with Nesterov momentum on what ranks have moved away from an anchor, on average.
//   u <- m u + d        a <- a - lr (d + m u)        (first step: u = d; without nesterov: a <- a - lr u)
// Owner: the strategy. Threads: one. Failure: none.
#pragma once
#include <memory>

#include "cohort/sync/strategy_row.h"

namespace cohort::sync {

inline constexpr const char* kAnchorSlot = "anchor";
inline constexpr const char* kMomentumSlot = "outer_momentum";

class OuterStep {
 public:
  explicit OuterStep(const SpecValues& values);
  static std::vector<SpecParam> params();                                         // lr, momentum, nesterov
  std::vector<SlotSpec> slots() const;                                            // the anchor, and where there is one the momentum
  void update(const Bucket& bucket, const Piece& delta, const Range& run) const;  // elements of the bucket's anchor, and of delta

  void adopt(Bucket& bucket) const;  // the parameters are the anchor, and there is no momentum

 private:
  const std::unique_ptr<optim::Optimizer> rule_;
};

}  // namespace cohort::sync
