#include "cohort/ps/rows.h"

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort::ps {

RowStore::RowStore(RowSpec spec, int workers)
    : spec_(std::move(spec)), rule_(optim::make(spec_.rule)), staged_(static_cast<std::size_t>(workers)) {
  if (spec_.width == 0) throw_failure(Kind::usage, "table {}: rows of no elements", spec_.name);
  if (const std::string why = refusal_of(*rule_); !why.empty())
    throw_failure(Kind::usage, "table {}: {} cannot update it: {}; take sgd, adagrad or another rule of single elements", spec_.name,
                  spec_.rule, why);
  states_.resize(rule_->state_names().size());
}

std::size_t RowStore::row_of(std::uint64_t id) {
  const auto [found, fresh] = index_.try_emplace(id, index_.size());
  if (!fresh) return found->second;
  if ((index_.size() * spec_.width * (1 + states_.size())) > spec_.most_bytes / sizeof(float)) {
    index_.erase(found);
    throw_failure(Kind::system, "table {}: its rows take more than the {} bytes it may have; use more servers, or fewer features",
                  spec_.name, spec_.most_bytes);
  }
  values_.resize(index_.size() * spec_.width);
  for (std::size_t k = 0; k < states_.size(); ++k)
    states_[k].resize(index_.size() * spec_.width, static_cast<float>(rule_->initial_state(k)));
  return found->second;
}

void RowStore::stage(int worker, std::span<const std::uint64_t> ids, std::span<const float> values) {
  Staged& staged = staged_[static_cast<std::size_t>(worker)];
  staged.ids.insert(staged.ids.end(), ids.begin(), ids.end());
  staged.values.insert(staged.values.end(), values.begin(), values.end());
}

// The sum over the workers, in order, of every row that one of them has.
void RowStore::gather(std::span<const Contribution> together) {
  place_.clear();
  touched_.clear();
  gradients_.clear();
  for (const Contribution& c : together) {
    const Staged& staged = staged_[static_cast<std::size_t>(c.worker)];
    const auto scale = static_cast<float>(c.update->scale);
    for (std::size_t i = 0; i < staged.ids.size(); ++i) {
      const std::size_t row = row_of(staged.ids[i]);
      const auto [place, fresh] = place_.try_emplace(row, touched_.size());
      if (fresh) {
        touched_.push_back(row);
        gradients_.resize(gradients_.size() + spec_.width);
      }
      for (std::size_t k = 0; k < spec_.width; ++k)
        gradients_[place->second * spec_.width + k] += scale * staged.values[i * spec_.width + k];
    }
  }
}

// Rows are copied to one run, so that a rule makes one pass.
void RowStore::update(double mean, const optim::StepInfo& info) {
  const std::size_t width = spec_.width, count = touched_.size() * width;
  std::vector<std::vector<float>> runs(1 + states_.size(), std::vector<float>(count));
  const auto each = [&](const auto& move) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      std::vector<float>& all = run == 0 ? values_ : states_[run - 1];
      for (std::size_t i = 0; i < touched_.size(); ++i) move(all.data() + touched_[i] * width, runs[run].data() + i * width);
    }
  };
  each([&](float* row, float* place) { std::copy_n(row, width, place); });
  std::vector<void*> state;
  for (std::size_t run = 1; run < runs.size(); ++run) state.push_back(runs[run].data());
  const std::int64_t shape[] = {static_cast<std::int64_t>(count)};
  optim::StepInfo scaled = info;
  scaled.grad_scale = mean;
  rule_->update({.param = runs[0].data(), .grad = gradients_.data(), .state = state, .count = count, .name = spec_.name, .shape = shape},
                scaled);
  each([&](float* row, float* place) { std::copy_n(place, width, row); });
}

void RowStore::apply(std::span<const Contribution> together, double mean, std::int64_t number) {
  if (std::ranges::all_of(together, [](const Contribution& c) { return c.update->go; })) {
    gather(together);
    if (!touched_.empty()) update(mean, {.step = number, .lr = together[0].update->lr});
  }
  for (const Contribution& c : together) drop(c.worker);
}

void RowStore::read(std::span<const std::uint64_t> ids, std::span<float> into) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = index_.find(ids[i]);
    float* const place = into.data() + i * spec_.width;
    found == index_.end() ? std::fill_n(place, spec_.width, 0.0F)
                          : std::copy_n(values_.data() + found->second * spec_.width, spec_.width, place);
  }
}

std::vector<std::uint64_t> RowStore::ids() const {
  std::vector<std::uint64_t> all;
  for (const auto& [id, row] : index_) all.push_back(id);
  std::ranges::sort(all);
  return all;
}

}  // namespace cohort::ps
