// Local SGD (Stich 2019; Lin et al. 2020): h steps of one's own, then the models are averaged.
//   x_i <- update(x_i, g_i)        every h steps:  x_i <- 1/n sum_j x_j
// The state of the rule stays each rank's own. A rank receives 2 P (n - 1) / (n h) elements a step. Laws: with h = 1 and plain SGD it is
// all_reduce; on quadratics with a shared Hessian the mean does not depend on h.
// With wait=none no round waits for a rank that is late or lost: what each has moved reaches the others by a centre (unwaited_outer.h).
#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/unwaited_outer.h"

namespace cohort::sync {
namespace {

class LocalSgd final : public Averaging {
 public:
  using Averaging::Averaging;
  std::string_view name() const override { return "local_sgd"; }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    copy(bucket.slot(kExchangeSlot), bucket.parameters());
    wire.average(bucket, bucket.slot(kExchangeSlot));
  }
  void mix_models(Bucket& bucket, const Decision&) override { copy(bucket.parameters(), bucket.slot(kExchangeSlot)); }
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    std::vector<SpecParam> params{every_param("8")};
    for (SpecParam& p : wait_params()) params.push_back(std::move(p));
    return SpecSchema{"local_sgd", "every rank trains by itself, and every h steps the models are averaged", params};
  }();
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) {
  if (values.word("wait") == "none")
    return make_unwaited({.name = "local_sgd", .every = values.integer("h"), .patience = values.seconds("patience")});
  return std::make_unique<LocalSgd>(values.integer("h"));
}

}  // namespace

extern const StrategyRow row_local_sgd{.name = "local_sgd",
                                       .schema = schema,
                                       .make = build,
                                       .limit = "local_sgd(h=1)",
                                       .short_rounds = "local_sgd(h=2)",
                                       .conserves = Conserves::consensus,
                                       .contraction = [](int) { return 0.0; }};

}  // namespace cohort::sync
