// One step of the Engine: begin, arrivals, finish. The rest of the story is in lane.cc.
#include <algorithm>
#include <cmath>

#include "cohort/base/trace.h"
#include "cohort/engine/engine.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {

void Engine::zero_gradients() {
  for (const auto& b : buckets_) {
    b->attach();
    b->clear();
  }
  touched_.assign(parameters_.size(), false);
}

void Engine::begin(const optim::StepInfo& step, bool sync) {
  if (syncing_ && came_ > 0) throw_failure(Kind::usage, "begin() before finish(): gradients of step {} are under way", step_.step);
  for (const auto& b : buckets_) b->attach();
  step_ = step;
  step_.clear_grad = true;
  syncing_ = sync;
  if (!sync) return;
  came_ = 0;
  arrived_.assign(parameters_.size(), false);
  for (std::size_t b = 0; b < buckets_.size(); ++b) left_[b] = buckets_[b]->members().size();
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    std::vector<sync::Bucket*> mine;
    for (std::size_t b = l; b < buckets_.size(); b += lanes_.size()) mine.push_back(buckets_[b].get());
    lanes_[l]->expect(std::move(mine), step_);
  }
}

void Engine::arrived(std::size_t parameter) {
  touched_[parameter] = true;
  if (!syncing_) return;
  if (came_ == 0 && on_first_) on_first_();
  if (arrived_[parameter])  // a lane may have carried the first one already
    throw_failure(Kind::usage,
                  "{} got a second gradient in step {}: one backward per begin(), with sync off for all but the last of a step; "
                  "after a backward that failed half-way, start from a new engine",
                  parameters_[parameter].name, step_.step);
  arrived_[parameter] = true;
  ++came_;
  if (!ordered_) order_.push_back(parameter);
  const std::size_t b = bucket_of_[parameter];
  if (--left_[b] == 0 && !lanes_.empty()) lanes_[b % lanes_.size()]->ready(buckets_[b].get());
}

Verdict Engine::finish(std::span<const double> sums) {
  if (!syncing_) throw_failure(Kind::usage, "finish() without begin(): the gradients of this step were not waited for");
  syncing_ = false;
  const auto reports = carry_all();
  Verdict verdict = vote(sums, reports);
  const auto start = Clock::now();
  const auto missing = find_missing(verdict.sums.back());
  verdict.sums.pop_back();
  if (rule_ && verdict.committed && !options_.early_update) settle_all(verdict, missing);
  if (rule_ && !verdict.committed) zero_gradients();
  touched_.assign(parameters_.size(), false);
  verdict.seconds.update = Seconds(Clock::now() - start).count();
  if (!ordered_) reorder();
  return verdict;
}

std::vector<Report> Engine::carry_all() {
  std::vector<Report> reports;
  if (lanes_.empty()) {
    const Crew crew{*strategy_, rule_.get(), options_.early_update, options_.norms};
    for (const auto& b : buckets_) reports.push_back(carry(*b, crew, {&comm_, {}}, step_));
    return reports;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (left_[b] > 0) lanes_[b % lanes_.size()]->ready(buckets_[b].get());  // some parameters got no gradient in this step
  for (const auto& lane : lanes_)
    for (auto& report : lane->await()) reports.push_back(std::move(report));
  return reports;
}

// In the model's order, so that no bucket plan changes the bits of the sum.
double Engine::add_up(const std::vector<Report>& reports, std::vector<double> Report::*squared) const {
  std::vector<double> of(parameters_.size(), 0);
  for (const Report& r : reports)
    for (std::size_t i = 0; i < (r.*squared).size(); ++i) of[r.bucket->members()[i].order] = (r.*squared)[i];
  double sum = 0;
  for (const double each : of) sum += each;
  return sum;
}

// 3 One tiny all-reduce: all finite? whose gradients are missing? everyone alive? The same answer on every rank.
Verdict Engine::vote(std::span<const double> sums, const std::vector<Report>& reports) {
  const Span span{"vote"};
  Verdict verdict;
  bool finite = true;
  for (const Report& r : reports) {
    verdict.seconds.agree += r.seconds.agree;
    verdict.seconds.wait += r.seconds.wait;
    finite = finite && (r.finite || options_.early_update);
  }
  verdict.squared_after = add_up(reports, &Report::after);
  if (options_.clip_norm > 0) finite = finite && std::isfinite(verdict.squared_after);  // doubles beyond 1e154: no norm to clip by
  std::vector<double> ballot(sums.begin(), sums.end());
  const auto lacking = static_cast<double>(std::count(touched_.begin(), touched_.end(), false));
  ballot.insert(ballot.end(), {finite ? 0.0 : 1.0, add_up(reports, &Report::before), lacking});
  comm_.all_reduce(collective::piece(std::span(ballot)), collective::Op::sum, {.name = "the step's vote"});
  verdict.committed = ballot[sums.size()] == 0;
  verdict.squared_before = ballot[sums.size() + 1] / comm_.size();
  if (options_.clip_norm > 0 && verdict.committed)  // of the gradient as the rule sees it
    verdict.clip = optim::clip_coefficient(verdict.squared_after * step_.grad_scale * step_.grad_scale, options_.clip_norm);
  verdict.sums.assign(ballot.begin(), ballot.begin() + static_cast<std::ptrdiff_t>(sums.size()));
  verdict.sums.push_back(ballot.back());
  return verdict;
}

// Which parameters got no gradient on any rank. Asked only when some rank lacks some and it makes a difference.
std::vector<bool> Engine::find_missing(double anywhere) {
  if (anywhere == 0 || !rule_ || options_.early_update) return {};
  std::vector<std::int32_t> came(touched_.begin(), touched_.end());
  comm_.all_reduce(collective::piece(std::span(came)), collective::Op::sum, {.name = "which parameters got gradients"});
  std::vector<bool> missing;
  for (const auto n : came) missing.push_back(n == 0);
  return missing;
}

void Engine::settle_all(const Verdict& verdict, const std::vector<bool>& missing) {
  optim::StepInfo step = step_;
  step.grad_scale *= verdict.clip;
  const Crew crew{*strategy_, rule_.get(), false, false};
  for (const auto& b : buckets_) settle(*b, crew, {&comm_, {}}, step, missing);
}

// After the first step buckets follow the order in which gradients really arrived: rank 0's, so that all ranks agree.
void Engine::reorder() {
  ordered_ = true;
  if (lanes_.empty()) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!arrived_[i]) order_.push_back(i);  // these may keep others waiting: to the end
  std::vector<std::int64_t> order(order_.begin(), order_.end());
  comm_.broadcast(collective::piece(std::span(order)), Rank{0}, {.name = "order of gradients"});
  make_buckets({order.begin(), order.end()});
}

}  // namespace cohort::engine
