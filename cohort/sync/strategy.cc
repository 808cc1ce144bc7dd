#include "cohort/sync/strategy.h"

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/strategies_rows.inc"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {

std::string_view name_of(Scope scope) { return scope == Scope::world ? "world" : "self"; }

std::string_view name_of(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::step: return "step";
    case Guarantee::sync_round: return "sync round";
    case Guarantee::push: return "push";
    case Guarantee::none: break;
  }
  return "none";
}

// Where blocks gather what they read there is nothing to send.
void Strategy::publish(Bucket& bucket, const Wire& wire) {
  if (bucket.placement().sharded() && !bucket.placement().gathers_parameters()) wire.gather(bucket);
}

void Strategy::consensus(Bucket& bucket, const Piece& into, const Wire& wire) {
  copy(into, bucket.parameters());
  if (semantics().drifts()) wire.average(bucket, into);
}

void begin_slot(Bucket& bucket, const SlotSpec& slot) {
  const Piece values = bucket.slot(slot.name);
  if (slot.begins == SlotSpec::Begins::parameters) return copy(values, bucket.parameters());
  fill(values, slot.begins == SlotSpec::Begins::one ? 1 : 0);
}

void begin_anew(Bucket& bucket, const std::vector<SlotSpec>& slots) {
  for (const SlotSpec& slot : slots)
    if (slot.kept && slot.merge == Merge::drop) begin_slot(bucket, slot);
}

SpecParam op_param() {
  return {
      .name = "op", .type = SpecParam::Type::word, .doc = "how gradients are combined", .preset = "average", .words = {"average", "sum"}};
}

std::span<const StrategyRow* const> strategies() { return kStrategiesRows; }

const StrategyRow& strategy_named(std::string_view name) {
  if (name == "average_once") throw_failure(Kind::usage, "strategy {} is called parallel_sgd now", name);
  return find_row(strategies(), name, "strategy");
}

std::string_view law_spec(const StrategyRow& row) { return row.short_rounds.empty() ? row.name : row.short_rounds; }

std::unique_ptr<Strategy> make(std::string_view spec) {
  const Spec parsed = Spec::parse(spec);
  const StrategyRow& row = strategy_named(parsed.name);
  return row.make(row.schema().read(parsed));
}

}  // namespace cohort::sync
