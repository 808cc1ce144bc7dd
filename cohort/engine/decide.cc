// How a step is decided. By the world: one small all-reduce, the vote; where it makes a difference a second one; and one for every further
// round of sums that the rule needs of whole tensors. Where a rank's step is its own: by what it knows; what the others want to know of it
// travels at sync rounds (share_sums).
#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/trace.h"
#include "cohort/engine/engine.h"
#include "cohort/engine/tensor_sums.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {

Verdict Engine::decide(std::span<const double> sums, const std::vector<BucketReport>& reports) {
  const bool together = schedule_.commit == sync::Scope::world;
  const TensorSums tensor_sums(options_.early_update ? nullptr : rule_.get(), buckets_, together, parameters_.size());
  std::vector<double> known;
  Verdict verdict = together ? vote(sums, reports, tensor_sums, known) : decide_alone(sums, reports, tensor_sums, known);
  const double lacking = verdict.sums.back();
  verdict.sums.pop_back();
  decision_ = {verdict.committed, verdict.clip, find_missing(lacking), std::move(known)};
  if (verdict.committed) measure_rounds(tensor_sums);
  return verdict;
}

namespace {

struct Found {
  bool finite = true;
  optim::ExactSum before, after;
};

Found add_up(const std::vector<BucketReport>& reports, StepSeconds& seconds) {
  Found all;
  for (const BucketReport& r : reports) {
    seconds.reduce += r.seconds.reduce;
    seconds.wait += r.seconds.wait;
    all.finite = all.finite && r.finite;
    all.before.add(r.before);
    all.after.add(r.after);
  }
  return all;
}

double count_lacking(const ArrivalCounter& arrivals) {
  const auto& touched = arrivals.touched();
  return static_cast<double>(std::count(touched.begin(), touched.end(), false));
}

// clip_norm > 0; doubles beyond 1e154: no norm to clip by.
void clip_by_norm(Verdict& verdict, double grad_scale, double clip_norm) {
  verdict.committed = verdict.committed && std::isfinite(verdict.squared_after);
  if (verdict.committed)  // of the gradient as the rule sees it
    verdict.clip = optim::clip_coefficient(verdict.squared_after * grad_scale * grad_scale, clip_norm);
}

}  // namespace

// All finite? Whose gradients are missing? Every rank alive? The same answer on every rank.
Verdict Engine::vote(std::span<const double> sums, const std::vector<BucketReport>& reports, const TensorSums& tensor_sums,
                     std::vector<double>& known) {
  const Span span{"vote"};
  Verdict verdict;
  const Found found = add_up(reports, verdict.seconds);
  const bool finite = found.finite || options_.early_update;
  std::vector<double> values(sums.begin(), sums.end());
  values.insert(values.end(), {finite ? 0.0 : 1.0, found.before.value(), count_lacking(arrivals_)});
  const std::size_t words = values.size(), of_tensors = words + optim::ExactSum::kWords;
  values.resize(of_tensors + tensor_sums.words());  // each rank measured a part
  found.after.write(std::span(values).subspan(words, optim::ExactSum::kWords));
  if (tensor_sums.rounds() > 0) tensor_sums.measure(0, step_, {}, std::span(values).subspan(of_tensors));
  comm_.all_reduce(collective::piece(std::span(values)), collective::Op::sum, {.name = "the step's vote"});
  verdict.squared_after = optim::ExactSum::read(std::span(values).subspan(words, optim::ExactSum::kWords)).value();
  if (tensor_sums.rounds() > 0) tensor_sums.read(0, std::span(values).subspan(of_tensors), known);
  verdict.committed = values[sums.size()] == 0;
  verdict.squared_before = values[sums.size() + 1] / spans_.mean_of();
  if (options_.clip_norm > 0) clip_by_norm(verdict, step_.grad_scale, options_.clip_norm);
  verdict.sums.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(sums.size()));
  verdict.sums.push_back(values[words - 1]);
  verdict.stuck = !verdict.committed;
  return verdict;
}

// This rank's own gradients decide, and its own norm clips them.
Verdict Engine::decide_alone(std::span<const double> sums, const std::vector<BucketReport>& reports, const TensorSums& tensor_sums,
                             std::vector<double>& known) {
  Verdict verdict{.sums = {sums.begin(), sums.end()}, .sums_of = 0};
  const Found found = add_up(reports, verdict.seconds);
  verdict.committed = found.finite;
  verdict.squared_before = found.before.value();
  verdict.squared_after = found.after.value();
  if (tensor_sums.rounds() > 0) {
    std::vector<double> words(tensor_sums.words());
    tensor_sums.measure(0, step_, {}, words);
    tensor_sums.read(0, words, known);
  }
  if (options_.clip_norm > 0) clip_by_norm(verdict, step_.grad_scale, options_.clip_norm);
  verdict.sums.push_back(count_lacking(arrivals_));
  return verdict;
}

// What callers of finish() add up travels when models do, or every so many steps where that is no affair of the world. whole: on this rank
// the round is; on all afterwards.
void Engine::share_sums(Verdict& verdict, bool& whole) {
  own_sums_.resize(verdict.sums.size());
  for (std::size_t i = 0; i < verdict.sums.size(); ++i) own_sums_[i] += verdict.sums[i];
  ++own_steps_;
  own_called_off_ += verdict.committed ? 0 : 1;
  const bool round = strategy_->semantics().sync_scope == sync::Scope::world;
  if (round ? !schedule_.ends_round : steps_ % options_.report_every != 0) return;
  const Span span{"the round's vote"};
  auto values = std::exchange(own_sums_, {});
  values.insert(values.end(), {whole ? 0.0 : 1.0, own_called_off_ == own_steps_ ? 1.0 : 0.0});
  comm_.all_reduce(collective::piece(std::span(values)), collective::Op::sum, {.name = "the round's vote"});
  verdict.stuck = values.back() > 0;
  if (round) whole = values[values.size() - 2] == 0;
  verdict.sums.assign(values.begin(), values.end() - 2);
  verdict.sums_of = std::exchange(own_steps_, 0);
  own_called_off_ = 0;
}

// Gradients are clipped, and nothing has changed. After the last of these rounds a rank needs no other one for its update.
void Engine::measure_rounds(const TensorSums& sums) {
  for (int round = 1; round < sums.rounds(); ++round) {
    const Span span{"measure tensors"};
    std::vector<double> words(sums.words());
    sums.measure(round, decided_step(), decision_.sums, words);
    if (schedule_.commit == sync::Scope::world)
      comm_.all_reduce(collective::piece(std::span(words)), collective::Op::sum, {.name = "sums of the rule"});
    sums.read(round, words, decision_.sums);
  }
}

// Which parameters got no gradient on any rank. Asked only when some rank lacks some and it makes a difference.
std::vector<bool> Engine::find_missing(double anywhere) {
  if (anywhere == 0 || !rule_ || options_.early_update) return {};
  const auto& touched = arrivals_.touched();
  std::vector<std::int32_t> came(touched.begin(), touched.end());
  if (schedule_.commit == sync::Scope::world)
    comm_.all_reduce(collective::piece(std::span(came)), collective::Op::sum, {.name = "which parameters got gradients"});
  std::vector<bool> missing;
  for (const auto n : came) missing.push_back(n == 0);
  return missing;
}

}  // namespace cohort::engine
