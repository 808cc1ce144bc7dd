#include "cohort/ps/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/collective/kernels/kernels.h"
#include "cohort/optim/averaged_rule.h"

namespace cohort::ps {
namespace {

void fill(const Piece& to, double value) {
  if (to.dtype == Dtype::f64) return void(std::fill_n(static_cast<double*>(to.data), to.count, value));
  std::fill_n(static_cast<float*>(to.data), to.count, static_cast<float>(value));
}

void check(const DenseSpec& spec) {
  if (spec.dtype != Dtype::f32 && spec.dtype != Dtype::f64)
    throw_failure(Kind::usage, "table {}: servers keep f32 and f64, not {}", spec.name, name_of(spec.dtype));
  std::size_t next = 0;
  for (const Part& part : spec.parts) {
    if (part.first < next || part.first > spec.count || part.count > spec.count - part.first)
      throw_failure(Kind::usage, "table {}: elements {} + {} are none of its {}, or stand twice", spec.name, part.first, part.count,
                    spec.count);
    next = part.first + part.count;
  }
}

bool all_missing(std::span<const Contribution> together, std::size_t part) {
  return std::ranges::all_of(together, [&](const Contribution& c) { return part < c.update->missing.size() && c.update->missing[part]; });
}

}  // namespace

std::string refusal_of(const optim::Optimizer& rule) {
  const optim::Needs needs = rule.needs();
  if (needs.grain == optim::Grain::tensor) return "it computes with whole tensors, and servers have parts of them";
  if (needs.rounds > 0) return "it needs the size of whole tensors before it updates a part, and servers have parts of them";
  const auto states = rule.state_names();
  if (std::ranges::find(states, optim::kAverageState) != states.end()) return "the average that evaluations read would lie on the servers";
  if (needs.taps || needs.side) return "it looks at layers or asks other ranks, and servers have elements only";
  return {};
}

DenseStore::Memory DenseStore::allocate() const { return {std::make_unique<std::byte[]>(spec_.count * size_of(spec_.dtype)), false}; }

DenseStore::DenseStore(DenseSpec spec, int workers)
    : spec_((check(spec), std::move(spec))),
      rule_(optim::make(spec_.rule)),
      staged_(static_cast<std::size_t>(workers)),
      memory_(allocate()) {
  if (const std::string why = refusal_of(*rule_); !why.empty())
    throw_failure(Kind::usage, "table {}: {} cannot update it: {}; take sgd, adam, adagrad or another rule of single elements", spec_.name,
                  spec_.rule, why);
  values_ = piece_of(memory_);
  for (std::size_t k = 0; k < rule_->state_names().size(); ++k) {
    state_memory_.push_back(allocate());
    states_.push_back(piece_of(state_memory_.back()));
    fill(states_.back(), rule_->initial_state(k));
  }
}

Piece DenseStore::staging(int worker) {
  Memory& memory = staged_[static_cast<std::size_t>(worker)];
  if (!memory.bytes) memory = allocate();
  return piece_of(memory);
}

// Returns what the rule multiplies the sum with: a factor that all have alike costs no rounding of its own.
double DenseStore::sum(std::span<const Contribution> together, double mean, const Piece& into) {
  const double scale = together[0].update->scale;
  const bool alike = std::ranges::all_of(together, [&](const Contribution& c) { return c.update->scale == scale; });
  std::vector<const void*> sources;
  for (const Contribution& c : together) {
    const Piece pushed = staging(c.worker);
    if (!staged(c.worker)) fill(pushed, 0);  // nothing was pushed in this clock
    if (!alike) collective::kernels().scale(pushed.dtype, pushed.data, pushed.count, c.update->scale);
    sources.push_back(pushed.data);
  }
  const std::array<void*, 1> targets{into.data};
  collective::kernels().reduce({.dtype = spec_.dtype, .post = mean}, sources, targets, spec_.count);
  return alike ? scale : 1;
}

void DenseStore::update(const Piece& gradient, const optim::StepInfo& info, std::span<const Contribution> together) {
  std::vector<void*> state(states_.size());
  for (std::size_t p = 0; p < spec_.parts.size(); ++p) {
    const Part& part = spec_.parts[p];
    if (part.count == 0 || all_missing(together, p)) continue;
    for (std::size_t k = 0; k < states_.size(); ++k) state[k] = states_[k].part(part.first, part.count).data;
    const std::int64_t shape[] = {static_cast<std::int64_t>(part.count)};
    rule_->update({.param = values_.part(part.first, part.count).data,
                   .grad = gradient.part(part.first, part.count).data,
                   .state = state,
                   .count = part.count,
                   .dtype = spec_.dtype,
                   .lr_scale = part.lr_scale,
                   .weight_decay = part.weight_decay,
                   .name = spec_.name,
                   .shape = shape},
                  info);
  }
}

void DenseStore::apply(std::span<const Contribution> together, double mean, std::int64_t number) {
  const bool counts = std::ranges::all_of(together, [](const Contribution& c) { return c.update->go; });
  if (counts && spec_.count > 0) {
    const Piece gradient = staging(together[0].worker);
    const double scale = sum(together, mean, gradient);
    update(gradient, {.step = number, .lr = together[0].update->lr, .grad_scale = scale}, together);
  }
  for (const Contribution& c : together) drop(c.worker);
}

}  // namespace cohort::ps
