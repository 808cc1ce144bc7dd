// Strategies whose ranks train by themselves and meet in their models: what the rows local_sgd, post_local_sgd, diloco, easgd and sma
// share. A rank's step is its own (commit_scope self). Every h steps a sync round: what travels is written into a slot of the
// communicator's memory, reduced there, and mixed into the parameters once all ranks agree that the round is whole. Between rounds the job
// stands for the mean of the models, unless a row says otherwise. Owner, threads, failure: as every Strategy.
#pragma once
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {

inline constexpr const char* kExchangeSlot = "exchange";  // what travels; scratch

class Averaging : public Strategy {
 public:
  explicit Averaging(std::int64_t every) : every_(every) {}
  Semantics semantics() const override {
    return {.commit_scope = Scope::self, .identical = Scope::self, .sync_scope = Scope::world, .guarantee = Guarantee::sync_round};
  }
  std::vector<SlotSpec> slots() const override { return {{.name = kExchangeSlot, .in_communicator = true, .kept = false}}; }
  double cost(double elements, int ranks) const override { return 2 * elements * (ranks - 1) / ranks / static_cast<double>(every_); }
  SyncSchedule schedule(std::int64_t step) const override {
    const bool due = step % every_ == 0;
    return {.commit = Scope::self, .exchanges_before = false, .exchanges_after = due, .ends_round = due};
  }

  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kExchangeSlot); }

 protected:
  std::int64_t every() const { return every_; }

 private:
  const std::int64_t every_;
};

SpecParam every_param(std::string_view preset);  // h: steps between two rounds

}  // namespace cohort::sync
