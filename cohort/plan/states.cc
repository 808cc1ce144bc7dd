#include "cohort/plan/states.h"

#include "cohort/base/error.h"

namespace cohort::plan {
namespace {

void check(int stage, int ranks) {
  if (stage < 0 || stage >= kStages) throw_failure(Kind::usage, "there is no ZeRO stage {}: 0 (nothing is sharded) to 3", stage);
  if (ranks < 1) throw_failure(Kind::usage, "{} ranks: at least one", ranks);
}

}  // namespace

StateBytes state_bytes(const StateSizes& r, int stage, int ranks, double parameters) {
  check(stage, ranks);
  const auto share = [&](double bytes, int from_stage) { return parameters * bytes / (stage >= from_stage ? ranks : 1); };
  return {.parameters = share(r.parameter, 3),
          .gradients = share(r.gradient, 2) + share(r.sharded_gradient, 1),
          .optimizer = share(r.optimizer, 1),
          .master = share(r.master, 1)};
}

double state_bytes_each(const StateSizes& state_sizes, int stage, int ranks) { return state_bytes(state_sizes, stage, ranks, 1).total(); }

double largest_model(const StateSizes& state_sizes, int stage, int ranks, double memory_bytes) {
  return memory_bytes / state_bytes_each(state_sizes, stage, ranks);
}

double moved_each(int stage, int ranks) {
  check(stage, ranks);
  return (stage == 3 ? 3.0 : 2.0) * (ranks - 1) / ranks;
}

double deepspeed_stage3_bytes(double parameters, double largest_layer, int ranks, Offload offload) {
  check(3, ranks);
  const double gathered = 4 * largest_layer;
  if (offload == Offload::everything) return gathered;
  return gathered + (offload == Offload::optimizer ? 2 : 18) * parameters / ranks;
}

}  // namespace cohort::plan
