#include "cohort/engine/side.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/nn/tensor.h"

namespace cohort::engine {
namespace {

optim::TappedLayer tapped(const nn::Tap::Layer& layer) {
  optim::TappedLayer out{
      .weight = layer.weight, .bias = layer.bias, .in = static_cast<std::size_t>(layer.in), .out = static_cast<std::size_t>(layer.out)};
  for (const auto& r : layer.records)
    out.seen.push_back(
        {nn::piece(r.inputs), nn::piece(r.gradients), static_cast<std::size_t>(r.inputs.size(0)), static_cast<std::size_t>(r.samples)});
  return out;
}

}  // namespace

UpdatedSlices::UpdatedSlices(const Buckets& buckets) {
  std::map<std::size_t, std::pair<const Bucket*, const sync::Member*>> members;
  for (const auto& b : buckets)
    for (const auto& m : b->members()) members[m.order] = {b.get(), &m};
  const auto add = [&](std::size_t order, const auto& slice_of) {
    std::vector<void*> state;
    slices_.push_back(slice_of(state));
    slices_.back().state = states_.emplace_back(std::move(state));
    orders_.push_back(order);
  };
  for (const auto& [order, place] : members) {
    const auto& [b, m] = place;
    if (b->owned(*m).count > 0) add(order, [&](auto& state) { return b->slice(*m, state); });
    if (b->buddy().here() && b->buddy().range(*m).count > 0) add(order, [&](auto& state) { return b->buddy().slice(*m, state); });
  }
}

void EngineSide::prepare(optim::Optimizer& rule, const optim::StepInfo& step, const Buckets& buckets, Ranks together, bool had_gradients) {
  step_ = step;
  const UpdatedSlices slices(buckets);
  slices_ = slices.all();
  orders_ = slices.orders();
  together_ = together;
  layers_.clear();
  for (const auto& layer : tap_.layers()) layers_.push_back(tapped(layer));
  const auto seen = [](const auto& layer) { return !layer.seen.empty(); };
  if (rule.watches(step.step) && had_gradients && std::ranges::none_of(layers_, seen))
    throw_failure(Kind::usage,
                  "{} looks at layers, and none was seen in step {}: run the model's blocks through the engine, "
                  "model.wrap_blocks(engine.block_wrapper())",
                  rule.spec(), step.step);
  rule.prepare(*this);
  layers_.clear();
  slices_ = {};
  orders_ = {};
  tap_.clear();
}

void EngineSide::sum(const Piece& values) { comm_.all_reduce(values, collective::Op::sum, {.name = "statistics of the rule"}); }

void EngineSide::spread(std::span<const optim::Job> jobs) {
  const std::vector<int> rank_of = optim::assign_jobs(jobs, comm_.size());
  for (std::size_t j = 0; j < jobs.size(); ++j)
    if (Rank{rank_of[j]} == comm_.rank()) jobs[j].run();
  for (std::size_t j = 0; j < jobs.size(); ++j)
    if (jobs[j].result.count > 0) comm_.broadcast(jobs[j].result, Rank{rank_of[j]}, {.name = "result of a job of the rule"});
}

}  // namespace cohort::engine
