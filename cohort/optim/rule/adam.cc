// Adam (Kingma and Ba 2015), formula in adam.h; weight decay is part of the gradient: g <- g + weight_decay w.
// Law: the first step is lr * sign(g) whatever the size of g, as long as |g| is far above eps.
#include "cohort/optim/rule/adam.h"

namespace cohort::optim {
namespace {

const SpecSchema& schema() {
  static const SpecSchema schema{"adam", "steps of the size of the rate, by first and second moments",
                                 adam_params("0", "added to the gradient, times w")};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<AdamRule<false>>(values); }

}  // namespace

extern const Rule row_adam{.name = "adam", .schema = schema, .make = build};

}  // namespace cohort::optim
