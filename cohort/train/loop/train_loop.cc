#include "cohort/train/loop/train_loop.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/base/trace.h"
#include "cohort/collective/shared/wait_timer.h"
#include "cohort/job/run_on_all.h"
#include "cohort/nn/autocast.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/parallel/linear.h"
#include "cohort/nn/sync_batch_norm.h"
#include "cohort/nn/tensor.h"
#include "cohort/train/loop/averaged_weights.h"
#include "cohort/train/loop/replicas.h"
#include "cohort/train/loop/same_data.h"
#include "cohort/train/loop/tuner.h"
#include "cohort/train/loop/via_host.h"

namespace cohort::train {
namespace {

constexpr Seconds kDataTimeout{300};  // a disk or a decoder that delivers nothing for so long is broken

double seconds_since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b * 0xbf58476d1ce4e5b9ULL + c * 0x94d049bb133111ebULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return x ^ (x >> 31);
}

ModelAndData load_on_all(collective::Communicator& comm, const TrainConfig& config) {
  std::optional<ModelAndData> model_and_data;
  job::run_on_all(comm, "model and data", [&] {
    model_and_data = load_model_and_data(config);
    data::steps_of(
        share_of(config, model_and_data->train->size(), comm.size(), comm.rank().value));  // throws for a share that is not possible
  });
  check_same_data(comm, *model_and_data, config);
  return std::move(*model_and_data);
}

// Below the message of what torch throws from a model, a loss or a metric stands a list of C++ frames. The message stays, after where it
// was.
template <class Body>
auto told(std::string_view where, Body body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    throw c10::Error(fmt::format("{}: {}", where, error.what_without_backtrace()));
  }
}

}  // namespace

TrainLoop::TrainLoop(collective::Communicator& comm, const TrainConfig& config, int cores, int ranks_here, RankStatus& status)
    : TrainLoop(comm, config, cores, ranks_here, status, load_on_all(comm, config)) {}

TrainLoop::TrainLoop(collective::Communicator& comm, const TrainConfig& config, int cores, int ranks_here, RankStatus& status,
                     ModelAndData m)
    : comm_(comm),
      config_(config),
      status_(status),
      mesh_(comm.size(), config.mesh),
      cores_(ranks_here > cores ? std::optional<CoreWait>(std::in_place) : std::nullopt),
      model_(std::move(m.model)),
      model_spec_(m.name),
      from_data_(m.from_data),
      pretrained_(m.pretrained),
      schedule_(optim::Schedule::parse(config.optim.schedule)),
      scale_(optim::LossScale::parse(loss_scale_spec(config))),
      non_finite_(config.max_skipped_steps, scale_.dynamic()),
      train_(std::move(m.train)),
      test_(std::move(m.test)),
      transforms_(std::move(m.transforms)),
      objective_(nn::complete(std::move(m.objective), train_->form(), config.loss, config.optim.label_smoothing)),
      counts_each_(m.counts_each > 0 ? m.counts_each : static_cast<double>(std::max<std::int64_t>(1, train_->form().labels()))),
      recomputing_(plan_recompute(comm, config, model_)) {
  model_.wrap_blocks(recomputing_.wrapper);
  if (config.sync_batch_norm) {
    const auto dp = mesh_.along("dp");
    norm_comm_ = comm.split(dp.group_of[static_cast<std::size_t>(comm.rank().value)], dp.place_of(comm.rank()));
    nn::convert_sync_batchnorm(model_.root(), *norm_comm_);
  }
  auto rule = optim::make(config.optimizer);
  base_lr_ = rule->default_lr();
  auto all = parameters(*rule);
  for (const auto& p : all) nn::broadcast(comm, p.tensor.detach(), Rank{0}, {.name = p.name});
  for (const auto& [name, buffer] : model_.named_buffers()) nn::broadcast(comm, buffer, Rank{0}, {.name = name});
  parameter_count_ = model_.parameter_count();
  split_model(all);
  engine::assign_units(model_, all);
  device_ = device_for(comm, config.device);
  if (!device_.is_cpu()) model_.root().to(device_);
  model_.train();
  engine::EngineOptions options = engine_options(config);
  if (options.autotune) {
    auto tuned = tune(comm, model_, {all, options, config.optimizer, config.data.batch, cores, ranks_here, config.precision});
    options = tuned.best;
    tuning_ = std::move(tuned.why);
  }
  engine_ = std::make_unique<engine::Engine>(comm, std::move(all), options, std::move(rule), cores, ranks_here);
  if (engine_->wraps_blocks()) model_.wrap_blocks(engine_->block_wrapper(recomputing_.wrapper));
  steps_per_epoch_ = data::steps_of(share());
  const optim::Needs needs = engine_->rule()->needs();
  if (needs.loss && needs.side && global_batch() < train_->size() && comm.rank().value == 0)  // it searches along lines
    log_warning(
        "optimizer={}: a step takes {} of {} samples, and a line search compares losses of the same samples; for full batches set "
        "data.batch={}",
        config.optimizer, global_batch(), train_->size(), (train_->size() + mesh_.size("dp") - 1) / mesh_.size("dp"));
  start_at(0, 0, 0);
}

// Each tp rank keeps its part of the layers that can be shared out.
void TrainLoop::split_model(std::vector<engine::Parameter>& parameters) {
  if (mesh_.size("tp") == 1) return;
  const auto tp = mesh_.along("tp");
  tp_comm_ = comm_.split(tp.group_of[static_cast<std::size_t>(comm_.rank().value)], tp.place_of(comm_.rank()));
  job::run_on_all(comm_, "layers that ranks share", [&] {
    shards_ = nn::shard_linears(model_.root(), *tp_comm_);
    if (shards_.empty())
      throw_failure(Kind::usage, "mesh={}: model '{}' has no layer that tp ranks can share; take one that does, as tp_mlp, or dp alone",
                    config_.mesh, model_spec_);
  });
  for (auto& p : parameters)
    if (const auto spec = shards_.find(p.name); spec != shards_.end()) p.shard = spec->second, p.cut = {"tp"};
}

bool TrainLoop::counts() const {
  for (const auto& axis : mesh_.others({"dp"}))
    if (mesh_.coordinate(comm_.rank(), axis) != 0) return false;
  return true;
}

std::vector<engine::Parameter> TrainLoop::parameters(const optim::Optimizer& rule) {
  optim::GroupOptions options{
      .weight_decay = rule.default_weight_decay(), .decay_1d = config_.optim.decay_1d, .frozen = config_.optim.frozen};
  for (const auto& text : config_.optim.lr_scale) options.lr_scale.push_back(optim::parse_lr_scale(text));
  std::vector<optim::TensorInfo> infos;
  const auto named = model_.named_parameters();
  for (const auto& [name, p] : named) infos.push_back({name, p.sizes().vec()});
  const auto assigned = optim::Groups(options).assign(infos);
  groups_ = assigned.summary;
  std::vector<engine::Parameter> out;
  for (std::size_t i = 0; i < named.size(); ++i) out.push_back({named[i].first, named[i].second, assigned.groups[assigned.of_tensor[i]]});
  return out;
}

void TrainLoop::start_at(std::int64_t epoch, std::int64_t samples, std::int64_t step) {
  const bool whole = samples % global_batch() == 0;
  position_ = {epoch, whole ? samples / global_batch() : 0};
  first_epoch_ = epoch;
  first_ = whole ? 0 : samples;
  step_ = step;
  engine_->start_at(step);
  non_finite_.reset();
  buffers_equal_ = true;
  compared_ = -1;
  loader_.reset();
  total_ = config_.steps;
  if (config_.epochs == 0) return;
  const auto left = config_.epochs <= epoch ? 0 : steps_of_epoch(epoch) - position_.step + (config_.epochs - epoch - 1) * steps_per_epoch_;
  total_ = config_.steps > 0 ? std::min(config_.steps, step + left) : step + left;
}

std::int64_t TrainLoop::samples_taken() const { return (position_.epoch == first_epoch_ ? first_ : 0) + position_.step * global_batch(); }

std::int64_t TrainLoop::steps_of_epoch(std::int64_t epoch) const {
  data::Share all = share();
  if (epoch == first_epoch_) all.first = first_;
  return data::steps_of(all);
}

void TrainLoop::open_loader() {
  data::Share mine = share();
  mine.first = first_;
  loader_ = std::make_unique<data::Loader>(
      train_, data::LoaderOptions{.share = mine, .transforms = transforms_, .start = position_, .threads = config_.data.threads});
}

double TrainLoop::compute(const data::Batch& batch) {
  const nn::Tensors all = on_device(batch);
  const auto divisor = static_cast<double>(engine_->averages() ? std::max<std::int64_t>(1, batch.count) : batch.global_count);
  std::vector<at::Tensor> losses;
  const int micro_batches = config_.data.accumulate;
  for (int k = 0; k < micro_batches; ++k) {
    const std::int64_t first = batch.count * k / micro_batches, last = batch.count * (k + 1) / micro_batches;
    engine_->begin({.step = step_ + 1 - left_out() - optimizer_start_,
                    .lr = schedule_.lr(step_, total_, base_lr_, mesh_.size("dp")),
                    .grad_scale = 1 / scale_.value()},
                   k + 1 == micro_batches);
    // The end of an epoch: other ranks have samples, this one none. It takes part where they need its statistics or parameters.
    if (first == last && !norm_comm_ && !engine_->shards_parameters()) continue;
    const Span span{"forward and backward"};
    const at::Tensor outputs = forward(all.inputs.narrow(0, first, last - first));
    const nn::Loss loss = objective_.loss(outputs, all.labels.narrow(0, first, last - first));
    if (profiler_ != nullptr) profiler_->end_forward();
    const at::Tensor mean = loss.value / (divisor * counts_each_);
    (scale_.scales() ? mean * scale_.value() : mean).backward();
    losses.push_back(loss.value.detach());
  }
  if (!device_.is_cpu()) engine_->await_gradients();  // all is enqueued before this thread waits for the loss
  double sum = 0;
  for (const at::Tensor& loss : losses) sum += loss.item<double>();
  return sum / counts_each_;
}

nn::Tensors TrainLoop::on_device(const data::Batch& batch) const {
  nn::Tensors here = nn::tensors(batch);
  if (device_.is_cpu()) return here;
  // From pinned memory of torch's pool the copies are enqueued, and this thread goes on; the pool keeps the memory until they are made.
  return {here.inputs.pin_memory().to(device_, true), here.labels.pin_memory().to(device_, true)};
}

// Autocast ends with forward: backward follows the types by itself.
at::Tensor TrainLoop::forward(const at::Tensor& inputs) {
  const autocast half(config_.precision, device_.type());
  const at::Tensor out = model_.forward(inputs);
  return config_.precision == Precision::fp32 ? out : out.to(at::kFloat);
}

StepResult TrainLoop::train_step() {
  if (!loader_) open_loader();
  if (profiler_ != nullptr) profiler_->begin_step();
  StepResult result;
  status_.step(step_ + 1, total_);
  status_.set_phase("waiting for data");
  const std::uint64_t received = received_bytes();
  const auto start = Clock::now();
  const data::Batch batch = loader_->next(Deadline::in(kDataTimeout));
  result.phases[observe::Phase::other] = seconds_since(start);
  torch::manual_seed(
      mix(static_cast<std::uint64_t>(config_.seed), static_cast<std::uint64_t>(step_), static_cast<std::uint64_t>(share().rank)));
  result.lr = schedule_.lr(step_, total_, base_lr_, mesh_.size("dp"));
  const auto computing = Clock::now();
  status_.set_phase("forward and backward");
  buffers_equal_ = false;
  const double stolen = stolen_seconds();
  const double loss = told(fmt::format("epoch {}, step {}", batch.epoch, batch.step), [&] { return compute(batch); });
  const double computed = seconds_since(computing), busy = computed - (stolen_seconds() - stolen);
  std::vector<double> sums(2 + static_cast<std::size_t>(comm_.size()));
  sums[0] = counts() ? loss : 0;
  if (std::exchange(warm_, true) && batch.count > 0)  // the first step is no measure of the others
    sums[1 + static_cast<std::size_t>(comm_.rank().value)] = std::max(busy, 1e-9) / static_cast<double>(batch.count);
  sums[1 + static_cast<std::size_t>(comm_.size())] = leaves_ ? 1 : 0;
  if (engine_->steps_alone()) add_own_loss(sums, loss, batch);
  const auto finishing = Clock::now();
  status_.set_phase("reducing gradients and updating");
  pending_position_ = {batch.epoch, batch.step};
  result.verdict = engine_->finish(sums, static_cast<double>(batch.global_count));
  const double update = result.verdict.seconds.update, exchange = std::max(0.0, seconds_since(finishing) - update);
  const double wait = std::min(exchange, result.verdict.seconds.wait);
  result.phases[observe::Phase::compute] = computed + update;
  result.phases[observe::Phase::wait] = wait;
  result.phases[observe::Phase::communicate] = exchange - wait;
  read_sums(result, batch);
  result.received_bytes = received_bytes() - received;
  result.scale = scale_.value();
  result.staleness = engine_->staleness();
  count_step(result.verdict.committed);
  result.skipped = scale_.skipped();
  non_finite_.add(result, step_);
  if (profiler_ != nullptr) profiler_->end_step();
  return result;
}

// Where a rank leaves out its own steps the losses of these are no part of the sum, else one of them would be all that is known of a round.
void TrainLoop::add_own_loss(std::vector<double>& sums, double loss, const data::Batch& batch) {
  const bool finite = std::isfinite(loss);
  if (!finite) sums[0] = 0;
  sums.push_back(finite ? static_cast<double>(batch.count) : 0);  // samples that it is of
}

// What all ranks added up. Where a rank's step is its own they know it at sync rounds only, then for all steps since the last one; between
// them the loss is this rank's.
void TrainLoop::read_sums(StepResult& result, const data::Batch& batch) {
  const engine::Verdict& verdict = result.verdict;
  result.samples = static_cast<double>(batch.global_count);
  const double counted = engine_->steps_alone() ? verdict.sums.back() : result.samples;
  if (verdict.sums_of == 0) {
    result.known = false;
    result.loss = counted > 0 ? verdict.sums[0] / counted : last_loss_;
    return;
  }
  result.loss = last_loss_ = verdict.sums[0] / counted;
  const auto paces = verdict.sums.begin() + 1;
  result.paces.assign(paces, paces + comm_.size());
  for (double& pace : result.paces) pace /= static_cast<double>(verdict.sums_of);
  result.leaves = paces[comm_.size()] > 0;
}

// Of this thread's time: it waited for other ranks, or, where there are more ranks than cores, for a core. Then the kernel lets ranks take
// turns, and the one that runs later looks slower than it is; with a core for every rank a shared core does make a rank slow.
double TrainLoop::stolen_seconds() const { return collective::wait_time().count() + (cores_ ? cores_->seconds() : 0); }

void TrainLoop::count_step(bool committed) {
  scale_.update(!committed);
  ++step_;
  const data::Position done = *std::exchange(pending_position_, std::nullopt);
  position_ = done.step + 1 < loader_->steps(done.epoch) ? data::Position{done.epoch, done.step + 1} : data::Position{done.epoch + 1, 0};
}

void TrainLoop::finish_step_alone(const engine::Decision& decision) {
  if (!pending_position_) throw_failure(Kind::bug, "step {} had not come to its vote", step_ + 1);
  engine_->finish_step_alone(decision);
  count_step(decision.committed);
}

at::Tensor TrainLoop::first_inputs(int count) const {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min<std::int64_t>(count, train_->size())));
  std::iota(indices.begin(), indices.end(), 0);
  at::Tensor inputs, labels;
  nn::fetch(*train_, transforms_, indices, inputs, labels);
  return inputs;
}

void TrainLoop::average_buffers() {
  if (std::exchange(buffers_equal_, true)) return;  // a mean of equal values may still round: never twice
  for (const auto& [name, buffer] : model_.named_buffers())
    buffer.is_floating_point() ? average_via_host(comm_, buffer, name) : broadcast_via_host(comm_, buffer, name);
}

nn::NamedTensors TrainLoop::replicas() const {
  engine_->await_parameters();
  std::set<std::string> sharded;
  for (const auto& bucket : engine_->buckets())
    if (bucket->placement().gathers_parameters() || !engine_->identical())
      for (const auto& member : bucket->members()) sharded.insert(member.name);
  nn::NamedTensors replicated;
  for (const auto& [name, p] : model_.named_parameters())
    if (!sharded.contains(name)) replicated.emplace_back(name, p);
  if (buffers_equal_)
    for (const auto& [name, buffer] : model_.named_buffers()) replicated.emplace_back(name, buffer);
  return replicated;
}

// Parts of a parameter are the same along dp only.
std::optional<std::string> TrainLoop::difference_of_replicas() const {
  nn::NamedTensors everywhere = replicas(), parts;
  std::ranges::copy_if(everywhere, std::back_inserter(parts), [&](const auto& entry) { return shards_.contains(entry.first); });
  std::erase_if(everywhere, [&](const auto& entry) { return shards_.contains(entry.first); });
  if (auto text = train::compare_replicas(comm_, everywhere, step_)) return text;
  return parts.empty() ? std::nullopt : train::compare_replicas(comm_, parts, step_, mesh_.along("dp").groups);
}

void TrainLoop::compare_replicas() {
  if (config_.check_replicas == 0 || (compared_ == step_ && compared_buffers_ >= buffers_equal_)) return;
  status_.set_phase("comparing replicas");
  if (const auto text = difference_of_replicas()) {
    diverged_ = true;
    throw_failure(Kind::corrupt, "{}", *text);
  }
  compared_ = step_;
  compared_buffers_ = buffers_equal_ || model_.named_buffers().empty();
}

void TrainLoop::stop_for_non_finite_steps(std::int64_t newest) {
  diverged_ = true;
  throw_failure(Kind::corrupt, "{}", non_finite_.text(config_, newest));
}

Evaluation TrainLoop::evaluate() {
  if (!test_) return {};
  const Span span{"evaluate"};
  status_.set_phase("evaluating");
  average_buffers();
  AveragedWeights averages(*engine_, step_ > left_out() + optimizer_start_);
  std::optional<engine::Consensus> consensus(std::in_place, *engine_);
  const torch::NoGradGuard no_grad;
  model_.train(false);
  data::Loader loader(test_, {.share = {.samples = test_->size(),
                                        .ranks = mesh_.size("dp"),
                                        .rank = mesh_.coordinate(comm_.rank(), "dp"),
                                        .batch = config_.data.batch,
                                        .sampler = "in_order"},
                              .transforms = transforms_.for_evaluation(),
                              .epochs = 1,
                              .threads = config_.data.threads});
  std::vector<double> sums(2 + objective_.metrics.size());  // the loss, the metrics, what was counted
  for (std::int64_t i = loader.steps(0); i > 0; --i) {
    const data::Batch batch = loader.next(Deadline::in(kDataTimeout));
    if (batch.count == 0 && !engine_->shards_parameters()) continue;
    const nn::Tensors t = on_device(batch);
    told("evaluation", [&] {
      const at::Tensor outputs = model_.forward(t.inputs);
      const nn::Loss loss = objective_.evaluation_loss(outputs, t.labels);
      sums.front() += loss.value.item<double>();
      for (std::size_t k = 0; k < objective_.metrics.size(); ++k) sums[1 + k] += objective_.metrics[k].sum(outputs, t.labels);
      sums.back() += static_cast<double>(loss.count);
    });
  }
  if (!counts()) std::ranges::fill(sums, 0);
  const engine::Disagreement apart = engine_->disagreement();
  sums.insert(sums.end(), {apart.squared_distance, apart.squared_residual});
  comm_.all_reduce(collective::piece(std::span<double>(sums)), collective::Op::sum, {.name = "evaluation"});
  model_.train(true);
  consensus.reset();
  averages.end();
  const double ranks = comm_.size(), squared_residual = sums.back() / ranks, squared_distance = sums[sums.size() - 2] / ranks;
  sums.resize(sums.size() - 2);
  if (sums.back() == 0) {
    if (comm_.rank().value == 0)
      log_error(
          "nothing was evaluated: none of the labels of the {} samples of data.test counts for the loss; look at its labels (-100 is left "
          "out)",
          test_->size());
    return {};
  }
  Evaluation result{.loss = sums.front() / sums.back(), .metrics = {}, .samples = static_cast<std::int64_t>(sums.back())};
  for (std::size_t k = 0; k < objective_.metrics.size(); ++k) {
    const nn::Metric& metric = objective_.metrics[k];
    const double mean = sums[1 + k] / sums.back();
    result.metrics.push_back({metric.name, metric.root ? std::sqrt(mean) : mean, metric.percent});
  }
  if (engine_->drifts() && apart.known) result.disagreement = std::sqrt(squared_distance / std::max(apart.squared_norm, 1e-300));
  if (squared_residual > 0) result.residual = std::sqrt(squared_residual);
  return result;
}

std::uint64_t TrainLoop::received_bytes() const {
  std::uint64_t bytes = 0;
  for (int which = 0; which < collective::kCollectives; ++which) bytes += comm_.moved(static_cast<collective::Collective>(which)).bytes;
  return bytes;
}

double TrainLoop::all_reduce_bytes() const {
  std::size_t elements = 0;
  for (const auto& bucket : engine_->buckets())
    for (const auto& m : bucket->members()) elements += m.count;
  const double ranks = comm_.size();
  return 2 * static_cast<double>(elements) * sizeof(float) * (ranks - 1) / ranks;
}

std::string MetricValue::text() const { return percent ? fmt::format("{:.2f} %", 100 * value) : fmt::format("{:.4f}", value); }

double Evaluation::metric(std::string_view name) const {
  std::vector<std::string_view> known;
  for (const MetricValue& one : metrics) {
    if (one.name == name) return one.value;
    known.emplace_back(one.name);
  }
  if (samples == 0)
    throw_failure(Kind::usage, "there is no metric '{}': nothing was evaluated (no test set, or none of its labels counts)", name);
  throw_unknown("metric", name, known);
}

}  // namespace cohort::train
