#include "cohort/sync/outer_step.h"

#include <fmt/format.h>

namespace cohort::sync {
namespace {

constexpr std::int64_t kLaterStep = 2;  // SGD only asks whether there is momentum from before; there is, and it begins as zeros

std::string rule_of(const SpecValues& values) {
  const double momentum = values.real("momentum");
  return fmt::format("sgd(lr={}, momentum={}, nesterov={})", values.real("lr"), momentum, values.boolean("nesterov") && momentum > 0);
}

}  // namespace

OuterStep::OuterStep(const SpecValues& values) : rule_(optim::make(rule_of(values))) {}

std::vector<SpecParam> OuterStep::params() {
  using Type = SpecParam::Type;
  return {{.name = "lr", .type = Type::real, .doc = "rate of the outer SGD", .preset = "0.7", .low = 0, .high = 1e6},
          {.name = "momentum", .type = Type::real, .doc = "of the outer SGD", .preset = "0.9", .low = 0, .high = 1},
          {.name = "nesterov", .type = Type::boolean, .doc = "of the outer momentum", .preset = "true"}};
}

std::vector<SlotSpec> OuterStep::slots() const {
  std::vector<SlotSpec> all{{.name = kAnchorSlot, .begins = SlotSpec::Begins::parameters}};
  if (!rule_->state_names().empty()) all.push_back({.name = kMomentumSlot});
  return all;
}

void OuterStep::update(const Bucket& bucket, const Piece& delta, const Range& run) const {
  const Piece anchor = bucket.slot(kAnchorSlot).part(run.first, run.count);
  std::vector<void*> state;
  if (bucket.has_slot(kMomentumSlot)) state.push_back(bucket.slot(kMomentumSlot).part(run.first, run.count).data);
  const Piece moved = delta.part(run.first, run.count);
  rule_->update({.param = anchor.data, .grad = moved.data, .state = state, .count = anchor.count, .dtype = anchor.dtype},
                {.step = kLaterStep, .lr = rule_->default_lr()});
}

void OuterStep::adopt(Bucket& bucket) const {
  for (const SlotSpec& slot : slots()) begin_slot(bucket, slot);
}

}  // namespace cohort::sync
