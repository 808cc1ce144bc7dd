#include "cohort/engine/engine.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "cohort/base/log.h"
#include "cohort/base/trace.h"
#include "cohort/optim/measure.h"

namespace cohort::engine {

struct Engine::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(Engine& e, std::size_t i) : engine(e), index(i) {}
  void operator()(const at::Tensor&) override { engine.arrived(index); }
  Engine& engine;
  const std::size_t index;
};

namespace {

void check(const std::vector<Parameter>& parameters) {
  for (const auto& p : parameters) {
    if (!p.tensor.is_leaf()) throw_failure(Kind::usage, "parameter {} is not a leaf: hand over the tensor the module holds", p.name);
    if (!p.tensor.device().is_cpu())
      throw_failure(Kind::usage, "parameter {} is on {}: the engine trains on the CPU", p.name, p.tensor.device().str());
  }
}

std::vector<Parameter> trainable(std::vector<Parameter> all) {
  std::unordered_set<const void*> seen;
  std::erase_if(all, [&](const Parameter& p) {
    return !p.tensor.requires_grad() || p.group.frozen || !seen.insert(p.tensor.unsafeGetTensorImpl()).second;
  });
  if (all.empty()) throw_failure(Kind::usage, "no parameter requires a gradient: there is nothing to train");
  return all;
}

}  // namespace

Engine::Engine(collective::Communicator& comm, std::vector<Parameter> parameters, EngineOptions options,
               std::unique_ptr<optim::Optimizer> rule, int cores, int ranks_here)
    : comm_(comm),
      options_(std::move(options)),
      parameters_(trainable(std::move(parameters))),
      rule_(std::move(rule)),
      strategy_(sync::make(options_.strategy)) {
  check(parameters_);
  if (options_.early_update && (options_.clip_norm > 0 || rule_ == nullptr))
    throw_failure(Kind::usage, "early_update updates before the norm of the whole gradient is known: turn off {}",
                  rule_ ? "clip_norm" : "early_update, there is no optimizer here");
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // gradients come from the back of the model to its front
  make_buckets(order);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
  lanes_choice_ = choose_lanes(options_.lanes, cores, ranks_here, buckets_.size());
  open_lanes();
}

Engine::~Engine() {
  lanes_.clear();
  for (auto& p : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, nullptr);
}

void Engine::open_lanes() {
  for (int i = 0; i < lanes_choice_.lanes; ++i)
    lanes_.push_back(std::make_unique<Lane>(i, comm_.split(0), Crew{*strategy_, rule_.get(), options_.early_update, options_.norms}));
}

void Engine::make_buckets(const std::vector<std::size_t>& order) {
  std::vector<PlanTensor> tensors;
  for (const std::size_t i : order)
    tensors.push_back({parameters_[i].tensor.nbytes(), static_cast<int>(parameters_[i].tensor.scalar_type())});
  const auto plan = plan_buckets(tensors, options_.first_bucket, options_.bucket);
  std::vector<std::unique_ptr<sync::Bucket>> fresh;
  std::vector<std::size_t> bucket_of(parameters_.size());
  for (const auto& picked : plan) {
    std::vector<sync::Member> members;
    for (const std::size_t k : picked) {
      const Parameter& p = parameters_[order[k]];
      members.push_back({.name = p.name, .param = p.tensor, .group = p.group, .order = order[k]});
      bucket_of[order[k]] = fresh.size();
    }
    fresh.push_back(std::make_unique<sync::Bucket>(static_cast<int>(fresh.size()), std::move(members), comm_));
    if (rule_) fresh.back()->own_parameters(*rule_);
  }
  if (rule_ && !buckets_.empty())  // the state of what is trained already moves along
    each_state([&](const std::string& name, const std::string& state, const at::Tensor& values) {
      const auto names = rule_->state_names();
      const auto which = static_cast<std::size_t>(std::find(names.begin(), names.end(), state) - names.begin());
      for (const auto& bucket : fresh)
        for (const auto& m : bucket->members())
          if (m.name == name) bucket->state(m, which).copy_(values);
    });
  buckets_ = std::move(fresh);
  bucket_of_ = std::move(bucket_of);
  left_.assign(buckets_.size(), 0);
}

void Engine::each_state(const std::function<void(const std::string&, const std::string&, const at::Tensor&)>& visit) const {
  if (!rule_) return;
  const auto names = rule_->state_names();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const auto& m : buckets_[bucket_of_[i]]->members())
      for (std::size_t k = 0; m.order == i && k < names.size(); ++k) visit(m.name, names[k], buckets_[bucket_of_[i]]->state(m, k));
}

void Engine::zero_gradients() {
  for (const auto& b : buckets_) {
    b->attach();
    b->clear();
  }
}

void Engine::begin(const optim::StepInfo& step, bool sync) {
  for (const auto& b : buckets_) b->attach();
  step_ = step;
  step_.clear_grad = true;
  syncing_ = sync;
  if (!sync) return;
  arrived_.assign(parameters_.size(), false);
  for (std::size_t b = 0; b < buckets_.size(); ++b) left_[b] = buckets_[b]->members().size();
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    std::vector<sync::Bucket*> mine;
    for (std::size_t b = l; b < buckets_.size(); b += lanes_.size()) mine.push_back(buckets_[b].get());
    lanes_[l]->expect(std::move(mine), step_);
  }
}

void Engine::arrived(std::size_t parameter) {
  if (!syncing_) return;
  if (on_first_ && std::none_of(arrived_.begin(), arrived_.end(), [](bool a) { return a; })) on_first_();
  if (arrived_[parameter]) return;
  arrived_[parameter] = true;
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
    for (auto& report : lane->await()) reports.push_back(report);
  return reports;
}

// 3 One tiny all-reduce: all finite? whose gradients are missing? everyone alive? The same answer on every rank.
Verdict Engine::vote(std::span<const double> sums, const std::vector<Report>& reports) {
  const Span span{"vote"};
  Verdict verdict;
  double before = 0;
  for (const Report& r : reports) {
    before += r.squared_before;
    verdict.seconds.agree += r.seconds.agree;
    verdict.seconds.wait += r.seconds.wait;
  }
  bool finite = true;
  for (std::size_t i = 0; i < parameters_.size() && !options_.early_update; ++i) {  // in the model's order: no bucket plan changes the sum
    const auto& bucket = *buckets_[bucket_of_[i]];
    const auto m = std::find_if(bucket.members().begin(), bucket.members().end(), [&](const auto& each) { return each.order == i; });
    const auto part = optim::measure(bucket.gradient(*m), m->count, bucket.real());
    verdict.squared_after += part.squared;
    finite = finite && part.finite;
  }
  std::vector<double> ballot(sums.begin(), sums.end());
  const double lacking = static_cast<double>(std::count(arrived_.begin(), arrived_.end(), false));
  ballot.insert(ballot.end(), {finite ? 0.0 : 1.0, before, lacking});
  comm_.all_reduce(collective::piece(std::span(ballot)), collective::Op::sum, {.name = "the step's vote"});
  verdict.committed = ballot[sums.size()] == 0;
  verdict.squared_before = ballot[sums.size() + 1] / comm_.size();
  if (options_.clip_norm > 0) verdict.clip = optim::clip_coefficient(verdict.squared_after, options_.clip_norm);
  verdict.sums.assign(ballot.begin(), ballot.begin() + static_cast<std::ptrdiff_t>(sums.size()));
  verdict.sums.push_back(ballot.back());
  return verdict;
}

// Which parameters got no gradient on any rank. Asked only when some rank lacks some.
std::vector<bool> Engine::find_missing(double anywhere) {
  if (anywhere == 0) return {};
  std::vector<std::int32_t> came(arrived_.begin(), arrived_.end());
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
  if (lanes_.empty() || order_.size() != parameters_.size()) return;
  std::vector<std::int64_t> order(order_.begin(), order_.end());
  comm_.broadcast(collective::piece(std::span(order)), Rank{0}, {.name = "order of gradients"});
  make_buckets({order.begin(), order.end()});
}

}  // namespace cohort::engine
