// AdamW (Loshchilov and Hutter 2019), formula in adam.h; weight decay is kept out of the moments: w <- (1 - lr weight_decay) w first.
// Law: with gradient 0, w_t = (1 - lr weight_decay)^t w_0; without weight decay it is adam, bit for bit.
#include "cohort/optim/rule/adam.h"

namespace cohort::optim {
namespace {

const SpecSchema& schema() {
  static const SpecSchema schema{"adamw", "adam with decoupled weight decay",
                                 adam_params("1e-2", "shrinks w by lr times this, outside the moments")};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<AdamRule<true>>(values); }

}  // namespace

extern const Rule row_adamw{.name = "adamw", .schema = schema, .make = build};

}  // namespace cohort::optim
