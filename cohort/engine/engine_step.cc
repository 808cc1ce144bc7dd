// One step of the Engine: begin, arrivals, finish. The rest of the story is in lane.cc.
#include <algorithm>
#include <cmath>
#include <utility>

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
  if (open_ && stage() >= 2 && !syncing_) carry_all();  // the backward before this one: its gradients are agreed upon and added
  for (const auto& b : buckets_) b->attach();
  step_ = step;
  step_.clear_grad = stage() < 2;  // views are added to; other gradients replace what was there
  syncing_ = sync;
  open_ = true;
  standing_ = Standing::open;
  if (!sync && stage() < 2) return;
  if (!sync && options_.norms)
    throw_failure(Kind::usage,
                  "norms with accumulation in stage {}: no rank has the sum of its own gradients; turn off norms, or take stage 1",
                  stage());
  came_ = 0;
  carried_.clear();
  completed_.clear();
  arrived_.assign(parameters_.size(), false);
  for (std::size_t b = 0; b < buckets_.size(); ++b) left_[b] = buckets_[b]->members().size();
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    std::vector<sync::Bucket*> mine;
    for (std::size_t b = l; b < buckets_.size(); b += lanes_.size()) mine.push_back(buckets_[b].get());
    lanes_[l]->expect(std::move(mine), {step_, sync});
  }
}

void Engine::arrived(std::size_t parameter) {
  touched_[parameter] = true;
  const bool carries = syncing_ || (open_ && stage() >= 2);
  if (syncing_ && came_ == 0 && on_first_) on_first_();
  if (carries && arrived_[parameter])  // a lane may have carried the first one already
    throw_failure(Kind::usage,
                  "{} got a second gradient in step {}: one backward per begin(), with sync off for all but the last of a step; "
                  "after a backward that failed half-way, start from a new engine",
                  parameters_[parameter].name, step_.step);
  const std::size_t b = bucket_of_[parameter];
  if (stage() >= 2) {
    make_room(*buckets_[b]);
    buckets_[b]->take(place_in_[parameter]);
  }
  if (!carries) return;
  arrived_[parameter] = true;
  ++came_;
  if (!ordered_ && syncing_) order_.push_back(parameter);
  if (--left_[b] > 0) return;
  completed_.push_back(b);
  if (!lanes_.empty()) lanes_[b % lanes_.size()]->ready(buckets_[b].get());
  if (carries_in_hooks()) carry_ready(buckets_.size());
}

// A bucket that starts to fill waits while as many are on their way as lanes can carry, unless they wait for gradients themselves.
void Engine::make_room(const sync::Bucket& bucket) {
  if (bucket.in_flight()) return;
  const auto room = [&] { return pool_->lent() <= lanes_.size(); };
  for (const auto& lane : lanes_) lane->await_room(room);
}

// In plan order, as far as they are complete: every rank carries the same bucket next.
void Engine::carry_ready(std::size_t up_to) {
  while (carried_.size() < up_to && left_[carried_.size()] == 0)
    carried_.push_back(carry(*buckets_[carried_.size()], crew(), {&comm_, {}}, {step_, syncing_}));
}

Verdict Engine::finish(std::span<const double> sums) {
  if (!syncing_) throw_failure(Kind::usage, "finish() without begin(): the gradients of this step were not waited for");
  const auto reports = carry_all();
  syncing_ = open_ = false;
  standing_ = Standing::undecided;
  Verdict verdict = vote(sums, reports);
  const auto start = Clock::now();
  decision_ = {verdict.committed, verdict.clip, find_missing(verdict.sums.back())};
  if (on_agreed_) on_agreed_();
  updated_ = 0;
  standing_ = Standing::decided;
  verdict.sums.pop_back();
  if (rule_ && verdict.committed && !options_.early_update) settle_all();
  if (rule_ && !verdict.committed) zero_gradients();
  touched_.assign(parameters_.size(), false);
  verdict.seconds.update = Seconds(Clock::now() - start).count();
  if (!ordered_) reorder();
  return verdict;
}

std::vector<Report> Engine::carry_all() {
  if (lanes_.empty()) {
    left_.assign(buckets_.size(), 0);  // some parameters got no gradient in this step
    carry_ready(buckets_.size());
    return std::exchange(carried_, {});
  }
  std::vector<Report> reports;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (left_[b] > 0) lanes_[b % lanes_.size()]->ready(buckets_[b].get());
  for (const auto& lane : lanes_)
    for (auto& report : lane->await()) reports.push_back(std::move(report));
  return reports;
}

// 3 One tiny all-reduce: all finite? whose gradients are missing? everyone alive? The same answer on every rank.
Verdict Engine::vote(std::span<const double> sums, const std::vector<Report>& reports) {
  const Span span{"vote"};
  Verdict verdict;
  bool finite = true;
  optim::ExactSum before, after;
  for (const Report& r : reports) {
    verdict.seconds.agree += r.seconds.agree;
    verdict.seconds.wait += r.seconds.wait;
    finite = finite && (r.finite || options_.early_update);
    before.add(r.before);
    after.add(r.after);
  }
  std::vector<double> ballot(sums.begin(), sums.end());
  const auto lacking = static_cast<double>(std::count(touched_.begin(), touched_.end(), false));
  ballot.insert(ballot.end(), {finite ? 0.0 : 1.0, before.value(), lacking});
  const std::size_t words = ballot.size();
  ballot.resize(words + optim::ExactSum::kWords);  // each rank measured a part
  after.write(std::span(ballot).subspan(words));
  comm_.all_reduce(collective::piece(std::span(ballot)), collective::Op::sum, {.name = "the step's vote"});
  verdict.squared_after = optim::ExactSum::read(std::span(ballot).subspan(words)).value();
  verdict.committed = ballot[sums.size()] == 0;
  if (options_.clip_norm > 0)  // doubles beyond 1e154: no norm to clip by
    verdict.committed = verdict.committed && std::isfinite(verdict.squared_after);
  verdict.squared_before = ballot[sums.size() + 1] / comm_.size();
  if (options_.clip_norm > 0 && verdict.committed)  // of the gradient as the rule sees it
    verdict.clip = optim::clip_coefficient(verdict.squared_after * step_.grad_scale * step_.grad_scale, options_.clip_norm);
  verdict.sums.assign(ballot.begin(), ballot.begin() + static_cast<std::ptrdiff_t>(sums.size()));
  verdict.sums.push_back(ballot[words - 1]);
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

optim::StepInfo Engine::decided_step() const {
  optim::StepInfo step = step_;
  step.grad_scale *= decision_.clip;
  return step;
}

Crew Engine::settlers() const { return {.strategy = *strategy_, .rule = rule_.get(), .in_lane = false}; }

void Engine::settle_all() {
  for (const auto& b : buckets_) {
    ++updated_;  // what can fail in settle() comes after the update
    settle(*b, settlers(), {&comm_, {}}, decided_step(), decision_.missing);
  }
}

void Engine::end_alone(const Decision& decision) {
  if (standing_ == Standing::open || step_.step == 0) throw_failure(Kind::bug, "step {} had not come to its vote", step_.step);
  if (standing_ == Standing::undecided) updated_ = 0;
  decision_ = decision;
  standing_ = Standing::decided;
  if (!decision_.committed) return zero_gradients();
  for (; updated_ < buckets_.size(); ++updated_) update(*buckets_[updated_], settlers(), decided_step(), decision_.missing);
}

// After the first step buckets follow the order in which gradients really arrived: rank 0's, so that all ranks agree.
void Engine::reorder() {
  ordered_ = true;
  if (stage() > 0) return reorder_buckets();
  if (lanes_.empty()) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!arrived_[i]) order_.push_back(i);  // these may keep others waiting: to the end
  std::vector<std::int64_t> order(order_.begin(), order_.end());
  comm_.broadcast(collective::piece(std::span(order)), Rank{0}, {.name = "order of gradients"});
  make_buckets({order.begin(), order.end()});
}

// What is sharded stays where it is: the buckets are kept, and taken in another order.
void Engine::reorder_buckets() {
  std::vector<std::int64_t> order(completed_.begin(), completed_.end());
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (std::find(completed_.begin(), completed_.end(), b) == completed_.end()) order.push_back(static_cast<std::int64_t>(b));
  comm_.broadcast(collective::piece(std::span(order)), Rank{0}, {.name = "order of buckets"});
  std::vector<std::unique_ptr<sync::Bucket>> sorted;
  for (const auto b : order) sorted.push_back(std::move(buckets_[static_cast<std::size_t>(b)]));
  buckets_ = std::move(sorted);
  index_buckets();
}

}  // namespace cohort::engine
