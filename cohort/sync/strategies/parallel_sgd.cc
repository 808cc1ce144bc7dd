// Parallel SGD (Zinkevich et al. 2010), one-shot averaging: every rank trains by itself to the end of the run, and then the models are
// averaged, once.
//   x_i <- update(x_i, g_i)        at the end:  x <- 1/n sum_i x_i
// Nothing travels before: the end is that of the run, where the job takes the model it stands for (Engine::adopt_consensus); evaluations
// and checkpoints on the way look at the same mean, and training goes on with each rank's own. Laws: no bytes move in a step; each rank
// trains as if it were alone; the variance of the mean falls as 1/n, a bias that all ranks have does not.
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {
namespace {

class ParallelSgd final : public Strategy {
 public:
  std::string_view name() const override { return "parallel_sgd"; }
  Semantics semantics() const override {
    return {.commit_scope = Scope::self, .identical = Scope::self, .sync_scope = Scope::self, .guarantee = Guarantee::none};
  }
  double cost(double, int) const override { return 0; }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = false, .exchanges_after = false, .ends_round = false};
  }
};

const SpecSchema& schema() {
  static const SpecSchema schema{"parallel_sgd", "every rank trains by itself, and the models are averaged once, at the end of the run"};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues&) { return std::make_unique<ParallelSgd>(); }

}  // namespace

extern const StrategyRow row_parallel_sgd{.name = "parallel_sgd", .schema = schema, .make = build, .limit = ""};

}  // namespace cohort::sync
