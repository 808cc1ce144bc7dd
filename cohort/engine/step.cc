// A training step, in the order it happens:
//   begin()        the engine is ready for one backward
//   on_gradient()  called by backward's hooks: a gradient arrived; a bucket that is complete goes to its lane
//   carry()        1 gather and 2 reduce a bucket's gradients, on a lane beside backward or in finish()
//   finish()       3 the decision (decide.cc), then, when it is to go on, for every bucket
//   update(), publish()   4 update what this rank owns, 6 send fresh parameters to the ranks that read them: at once, or beside the next
//                         forward (publisher.h)
//   close_round()  5 where models are exchanged: they travel, are voted for, and change the parameters
#include "cohort/engine/step.h"

#include <algorithm>
#include <utility>

#include "cohort/base/trace.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/shared/wait_timer.h"
#include "cohort/cuda/runtime.h"
#include "cohort/engine/engine.h"
#include "cohort/engine/side.h"
#include "cohort/engine/tensor_sums.h"
#include "cohort/engine/update.h"
#include "cohort/optim/measure.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

double since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

}  // namespace

void Engine::begin(const optim::StepInfo& step, bool sync) {
  refuse_after_make_whole();
  if (syncing_ && !arrivals_.none_yet())
    throw_failure(Kind::usage, "begin() before finish(): gradients of step {} are under way", step_.step);
  if (open_ && pooled() && !syncing_) lanes_.await_carried(pass());  // the backward before this one: its gradients are reduced and added
  carried_.reset();
  mirror_.forget();
  const cuda::OnStream on(gpu_stream());
  for (const auto& b : buckets_) {
    b->follow_stream();
    b->attach();
  }
  strategy_->begin_step();
  step_ = step;
  if (side_) side_->tap().watch(rule_->watches(step.step));
  step_.clear_grad = !pooled();  // views are added to; other gradients replace what was there
  schedule_ = strategy_->schedule(steps_ + 1);
  syncing_ = sync;
  open_ = true;
  step_state_ = StepState::open;
  if (!sync && !pooled()) return;
  if (!sync && options_.norms)
    throw_failure(Kind::usage,
                  "norms with accumulation and sync={}: no rank has the sum of its own gradients; turn off norms, or take stage 1",
                  options_.strategy);
  if (!sync && codec_ && codec_->feedback())
    throw_failure(Kind::usage,
                  "codec={} with accumulation and sync={}: gradients are sent in every backward there, and what a codec keeps belongs to a "
                  "whole step; take stage 1, or a codec without feedback",
                  codec_->spec(), options_.strategy);
  arrivals_.start(parameters_.size(), sync && !ordered_);
  lanes_.expect(pass());
}

void Engine::set_rate(double lr) {
  if (options_.early_update && open_ && lr != step_.lr)
    throw_failure(Kind::usage,
                  "set_rate() after begin() of step {} with early_update: lanes update as gradients arrive, with the rate {} that begin() "
                  "was given; give it the new one",
                  step_.step, step_.lr);
  const bool weighs = codec_ && codec_->feedback() && syncing_ && lr != step_.lr;
  if (weighs && !arrivals_.none_yet())
    throw_failure(Kind::usage,
                  "another learning rate, {} in place of {}, when gradients of step {} are on their way by codec={}: what a codec keeps is "
                  "weighed with the rate as they are sent; call set_lr({}) before backward, and then step()",
                  lr, step_.lr, step_.step, codec_->spec(), lr);
  step_.lr = lr;
  if (weighs) lanes_.expect(pass());
}

void Engine::on_gradient(std::size_t parameter) {
  refuse_after_make_whole();
  arrivals_.touch(parameter);
  const bool reduces = syncing_ || (open_ && pooled());
  if (syncing_ && arrivals_.none_yet() && on_first_) on_first_();
  if (reduces) arrivals_.refuse_second(parameter, parameters_[parameter].name, step_.step);
  const std::size_t b = bucket_of_[parameter];
  if (pooled()) {
    if (!buckets_[b]->in_flight()) lanes_.wait_for_buffer(*pool_);
    buckets_[b]->take(place_in_[parameter]);
  }
  if (reduces && arrivals_.add(parameter, b)) lanes_.ready(b, pass());
}

namespace {

// This rank's share of measuring elements that some ranks hold alike, in runs that cut no block.
collective::Range share_of(std::size_t elements, const sync::Member& m, const sync::Holders& holders) {
  const int turn = (holders.me + static_cast<int>(m.order)) % holders.count;  // small tensors do not all fall to one rank
  return collective::part_of(elements, holders.count, turn, optim::kMeasureBlock);
}

// each(add): calls add(first, elements) for every run.
template <class Each>
const optim::GpuMeasure* measure_runs(const Bucket& bucket, bool of_reduced, const Each& each, optim::Measure& found) {
  if (!bucket.on_gpu()) {
    each([&](const std::byte* first, std::size_t count) { optim::measure(first, count, bucket.type(), found); });
    return nullptr;
  }
  optim::GpuMeasure& there = bucket.gpu_measure(of_reduced);
  there.begin();
  each([&](const std::byte* first, std::size_t count) { there.add(first, count, bucket.type()); });
  there.end();
  return &there;
}

// This rank's own gradients of all members.
const optim::GpuMeasure* measure_all(const Bucket& bucket, optim::Measure& found) {
  const auto* const all = static_cast<const std::byte*>(bucket.gradients().data);
  const auto each = [&](const auto& add) {
    for (const auto& m : bucket.members()) {
      const auto part = share_of(m.count, m, m.same_gradient);
      add(all + (m.first + part.first) * size_of(bucket.type()), part.size());
    }
  };
  return measure_runs(bucket, false, each, found);
}

// Of the gradients that the update will read this rank's part: what it owns, and where ranks hold the same an even share of the measuring.
// So every element is counted once, by a rank that holds it. together: else the gradients are this rank's own.
const optim::GpuMeasure* measure_part(const Bucket& bucket, bool together, optim::Measure& found) {
  const auto each = [&](const auto& add) {
    for (const auto& m : bucket.members()) {
      const auto part = share_of(bucket.owned(m).count, m, together ? m.same_part : sync::Holders{});
      add(bucket.gradient(m) + part.first * size_of(bucket.type()), part.size());
    }
  };
  return measure_runs(bucket, true, each, found);
}

}  // namespace

void read_measures(std::vector<BucketReport>& reports) {
  bool waited = false;
  for (BucketReport& r : reports) {
    if (r.gpu_before == nullptr && r.gpu_after == nullptr) continue;
    if (!std::exchange(waited, true)) cuda::synchronize(r.bucket->device());  // what follows lies on the same stream
    optim::Measure before, after;
    if (r.gpu_before != nullptr) r.gpu_before->read(before);
    if (r.gpu_after != nullptr) r.gpu_after->read(after);
    r.before = before.squared;
    r.after = after.squared;
    r.finite = after.finite;
  }
}

// The last gradient of the bucket has arrived; buckets go in plan order.
BucketReport carry(Bucket& bucket, const StepContext& context, sync::Wire wire, const ReductionPass& pass) {
  const Span span{"carry", bucket.name(), bucket.bytes()};
  BucketReport report{.bucket = &bucket};
  const auto start = Clock::now();
  const double waited = collective::wait_time().count();
  wire.step = coded_step(pass.step, context.seed);
  wire.number = pass.number;
  const OnStreamOf on(bucket);
  bucket.gather();  // 1 nothing to copy where gradients are views into the bucket, or were taken as they arrived
  optim::Measure before, after;
  if (context.measure_before)
    report.gpu_before = measure_all(bucket, before);  // the noise of a single rank's gradient, for what adapts to it
  const bool together = pass.schedule.commit == sync::Scope::world;
  const bool served = context.strategy.semantics().served;
  if (together || (served && pass.last)) context.strategy.reduce_gradients(bucket, wire);           // 2
  if (pass.last && pass.schedule.exchanges_before) context.strategy.exchange_models(bucket, wire);  // models of before the update
  if (pass.last) bucket.buddy().send(*wire.comm);  // where each rank has a buddy, its piece goes there too
  report.seconds.wait = collective::wait_time().count() - waited;
  report.seconds.reduce = since(start);
  report.before = before.squared;
  if (!pass.last) return report;
  if (served)
    report.gpu_after = measure_all(bucket, after);  // what it pushed is its own
  else if (!context.early_update || context.measure_before)
    report.gpu_after = measure_part(bucket, together, after);  // for the vote, while memory is hot
  report.finite = after.finite;
  report.after = after.squared;
  if (context.early_update) {  // fused: memory is hot, and no vote can skip the step
    update(bucket, context, pass.step, {});
    publish(bucket, context, wire);
  }
  return report;
}

void Engine::await_gradients() {
  if (carried_ || !syncing_) return;
  const cuda::OnStream on(gpu_stream());
  carried_ = lanes_.await_carried(pass());
}

Verdict Engine::finish(std::span<const double> sums, double samples) {
  refuse_after_make_whole();
  const bool with_loss = samples > 0 && !sums.empty();
  if (rule_ && rule_->needs().loss && !with_loss)
    throw_failure(
        Kind::usage,
        "{} looks at the loss of every step, and it was not given: call finish({{sum of losses}}, samples of all ranks), or train "
        "with cohort::Trainer, which does",
        rule_->spec());
  if (!syncing_) throw_failure(Kind::usage, "finish() without begin(): the gradients of this step were not waited for");
  const cuda::OnStream on(gpu_stream());
  await_gradients();
  auto reports = *std::exchange(carried_, std::nullopt);
  read_measures(reports);
  await_parameters();  // of blocks that did not run: their buckets are updated next
  syncing_ = open_ = false;
  if (side_)
    side_->prepare(*rule_, step_, buckets_,
                   schedule_.commit != sync::Scope::world ? EngineSide::Ranks::alone
                   : placement_.sharded()                 ? EngineSide::Ranks::share
                                                          : EngineSide::Ranks::alike,
                   std::ranges::find(arrivals_.touched(), true) != arrivals_.touched().end());
  step_state_ = StepState::undecided;       // all that the rule needs is here
  Verdict verdict = decide(sums, reports);  // 3
  if (with_loss) decision_.loss = verdict.sums[0] / samples;
  const auto start = Clock::now();
  if (before_update_) before_update_();
  ++steps_;
  updated_ = 0;
  step_state_ = StepState::decided;
  settle_codecs();
  if (strategy_->semantics().served)
    update_by_servers();
  else if (rule_ && verdict.committed && !options_.early_update)
    update_all();
  if (rule_ && !verdict.committed) zero_gradients();
  arrivals_.clear_touched(parameters_.size());
  mirror_.forget();
  verdict.seconds.update = since(start);
  close_round(verdict);  // 5
  if (!ordered_) reorder();
  return verdict;
}

// What codecs kept follows the decision, and stays where a parameter is not updated.
void Engine::settle_codecs() {
  for (const auto& b : buckets_) {
    if (b->coded() == nullptr) continue;
    for (const auto& m : b->members())
      if (!decision_.missing.empty() && decision_.missing[m.order]) b->coded()->keep(m.range());
    b->coded()->settle(decision_.committed);
  }
}

void Engine::update_all() {
  while (updated_ < buckets_.size()) {
    Bucket& b = updated_bucket(updated_++);  // what can fail comes after its update
    update(b, update_context(), decided_step(), decision_);
    publish(b);
  }
}

// Servers hear whether what was pushed counts, and send what came of it.
void Engine::update_by_servers() {
  for (const auto& b : buckets_) {
    const Span span{"mark", b->name(), b->bytes()};
    strategy_->mark(*b, decided_step(), decision_, wire(*b));
    b->clear();
  }
  for (const auto& b : buckets_) {
    const Span span{"pull", b->name(), b->bytes()};
    publish(*b);
  }
}

// Where parameters travel beside the next forward those of the first blocks, which arrived last, go first.
Bucket& Engine::updated_bucket(std::size_t turn) const { return *buckets_[publisher_ ? buckets_.size() - 1 - turn : turn]; }

// 5 What came lies in slots of its own until all ranks agree that the round is whole; no rank mixes in what is not finite.
void Engine::close_round(Verdict& verdict) {
  if (schedule_.commit == sync::Scope::world) return;
  const auto start = Clock::now();
  const double waited = collective::wait_time().count();
  if (schedule_.exchanges_after)
    for (const auto& b : buckets_) {
      const Span span{"exchange models", b->name(), b->bytes()};
      strategy_->exchange_models(*b, wire(*b));
    }
  bool whole = schedule_.ends_round;
  if (whole)
    for (const auto& b : buckets_) whole = whole && sync::all_finite(strategy_->exchanged(*b));
  share_sums(verdict, whole);
  const Decision round{.committed = whole, .number = steps_};
  if (whole) {
    for (const auto& b : buckets_) strategy_->mix_models(*b, round);
    ++rounds_;
  }
  verdict.seconds.reduce += since(start);
  verdict.seconds.wait += collective::wait_time().count() - waited;
}

// 6
void publish(Bucket& bucket, const StepContext& context, const sync::Wire& wire) {
  context.strategy.publish(bucket, wire);
  bucket.copy_to_device();
}

// 4 What this rank owns, and its copy of what the rank before it owns. The step is committed.
void update(Bucket& bucket, const StepContext& context, const optim::StepInfo& step, const Decision& decision) {
  const Span span{"update", bucket.name(), bucket.bytes()};
  std::vector<void*> state;
  const std::size_t sums = context.rule->needs().sums();
  const auto pass = [&](optim::Slice slice, std::size_t order) {
    slice.sums = std::span(decision.sums).subspan(order * sums, sums);
    context.in_lane || bucket.on_gpu() ? context.rule->update(slice, step) : update_by_all(*context.rule, slice, step);
  };
  for (const auto& m : bucket.members()) {
    if (!decision.missing.empty() && decision.missing[m.order]) continue;
    if (bucket.owned(m).count > 0) pass(bucket.slice(m, state), m.order);
    if (bucket.buddy().here() && bucket.buddy().range(m).count > 0) pass(bucket.buddy().slice(m, state), m.order);
  }
  bucket.mark_consumed();
}

optim::StepInfo Engine::decided_step() const {
  optim::StepInfo step = step_;
  step.grad_scale *= decision_.clip;
  step.loss = decision_.loss;
  return step;
}

StepContext Engine::update_context() const { return {.strategy = *strategy_, .rule = rule_.get(), .in_lane = false}; }

void Engine::finish_step_alone(const Decision& decision) {
  if (step_state_ == StepState::open || step_.step == 0) throw_failure(Kind::bug, "step {} had not come to its vote", step_.step);
  if (step_state_ == StepState::undecided) updated_ = 0;
  mirror_.forget();
  const cuda::OnStream on(gpu_stream());
  decision_ = decision;
  step_state_ = StepState::decided;
  settle_codecs();
  if (!decision_.committed) return zero_gradients();
  for (; updated_ < buckets_.size(); ++updated_) update(updated_bucket(updated_), update_context(), decided_step(), decision_);
}

void Engine::zero_gradients() {
  const cuda::OnStream on(gpu_stream());
  for (const auto& b : buckets_) {
    b->attach();
    b->clear();
  }
  if (side_) side_->tap().clear();
  arrivals_.clear_touched(parameters_.size());
}

}  // namespace cohort::engine
