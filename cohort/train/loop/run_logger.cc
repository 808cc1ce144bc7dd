#include "cohort/train/loop/run_logger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cohort/base/file.h"
#include "cohort/base/folder.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/trace.h"
#include "cohort/checkpoint/regular_file.h"
#include "cohort/nn/unshard/unsharder.h"
#include "cohort/observe/clocks.h"
#include "cohort/observe/timeline.h"

namespace cohort::train {
namespace {

constexpr std::size_t kMostConfigBytes = 64_MiB;

double elapsed(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

constexpr const char* kTraceFolder = "trace";
std::string rank_file(int rank) { return fmt::format("rank{}.json", rank); }
std::string rank_trace(const std::string& folder, int rank) { return fmt::format("{}/{}/{}", folder, kTraceFolder, rank_file(rank)); }

}  // namespace

RunLogger::RunLogger(collective::Communicator& comm, const TrainConfig& config, std::string config_text, const TrainLoop& loop,
                     std::function<bool()> may_write)
    : comm_(comm),
      config_(config),
      config_text_(std::move(config_text)),
      folder_(run_folder(config)),
      first_(comm.rank().value == 0),
      scaled_(loop.scale().scales()),
      global_batch_(static_cast<double>(loop.global_batch())),
      may_write_(std::move(may_write)),
      curves_(loop.objective().metrics) {
  if (config.observe.trace) start_trace();
  if (!first_) return;
  write_settings();
  outputs_ = std::make_unique<MetricOutputs>(config, comm.rank(), loop.step(), may_write_);
  BestEffort("the curves before this start").attempt([&] {
    earlier_seconds_ = curves_.load(outputs_->earlier());
    stragglers_.load(outputs_->earlier());
  });
  if (const auto url = outputs_->url(); !url.empty()) say(fmt::format("metrics at {}", url));
  open_terminal();
}

void RunLogger::start_trace() {
  Trace::set_clock_offset(observe::clock_offset_to_first(comm_).offset_ns);
  if (Trace::on()) trace_effort_.attempt([] { Trace::stop(); });  // of the epoch of an elastic job before this one
  open_trace();
}

void RunLogger::open_trace() {
  const int rank = comm_.rank().value;
  const auto write = [run = folder_, rank](const std::string& content) {
    write_file_atomically({Folder(run).make(kTraceFolder), rank_file(rank)}, content);
  };
  trace_effort_.attempt([&] {
    observe::make_folders(folder_);
    Trace::start(rank_trace(folder_, rank), comm_.rank(), write);
  });
}

void RunLogger::write_settings() {
  if (settings_written_ || (may_write_ && !may_write_())) return;
  settings_written_ = settings_effort_.attempt([&] {
    observe::make_folders(folder_);
    const std::string path = folder_ + "/config.yaml";
    if (!std::filesystem::exists(path) || checkpoint::read_regular_file(path, kMostConfigBytes) != config_text_)
      write_file_atomically(path, config_text_);
  });
}

// The launcher's own terminal: a bar cannot be drawn through its pipe. Without one, lines are printed among those of say(), in order.
void RunLogger::open_terminal() {
  if (const char* tty = std::getenv("COHORT_TTY"); tty != nullptr && *tty != 0) terminal_ = ::open(tty, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  observe::ProgressOptions options;
  options.fd = terminal_ >= 0 ? terminal_ : STDOUT_FILENO;
  progress_ = std::make_unique<observe::Progress>(options);
}

RunLogger::~RunLogger() {
  progress_.reset();
  if (terminal_ >= 0) ::close(terminal_);
}

void RunLogger::say(const std::string& line) {
  if (!first_) return;
  if (progress_) progress_->clear();
  fmt::print("{}\n", terminal_text(line));  // it may quote what came from outside: texts of a manifest, names of a table
  std::fflush(stdout);
}

void RunLogger::note(const std::string& line, std::initializer_list<observe::Field> fields) {
  if (!first_) return;
  say(line);
  outputs_->line(fields);
}

void RunLogger::epoch_starts(std::int64_t epoch, std::int64_t epochs, std::int64_t done, std::int64_t total) {
  window_start_ = Clock::now();
  if (config_.observe.trace && !Trace::on()) open_trace();
  if (!first_) return;
  write_settings();
  progress_->start(fmt::format("epoch {}/{}", epoch + 1, epochs), static_cast<std::uint64_t>(total), global_batch_);
  progress_->update(static_cast<std::uint64_t>(done));
}

void RunLogger::find_stragglers(const StepResult& r, std::int64_t step) {
  const auto changes = stragglers_.add_step(r.paces, step);
  if (!changes) return;
  outputs_->slow_ranks(stragglers_.slow_ranks());
  for (const auto& change : *changes) {
    outputs_->rank_slow(change);
    note(fmt::format("step {}: {}", step, describe(change)),
         {{"step", step}, {"slow_rank", change.rank.value}, {"slow", change.slow}, {"of_median", change.of_median}});
  }
}

void RunLogger::resumed(std::int64_t step, const TrainLoop& loop) {
  say(fmt::format("goes on after update {}", step));
  if (loop.done())
    say(fmt::format(
        "the run is complete: all {} updates were made before; to train longer raise epochs or steps, to train anew take another "
        "`out` or checkpoint.resume=never",
        step));
}

// The first of a row is told in full; then the count, ever more rarely.
void RunLogger::note_left_out(const StepResult& r, std::int64_t step) {
  if (r.verdict.committed) return end_left_out(fmt::format("step {}: updates again,", step));
  left_out_last_ = step;
  if (++left_out_ == 1)
    say(fmt::format("step {}: a gradient was not finite on some rank{}; the step was left out on all of them", step,
                    scaled_ ? fmt::format(" at loss scale {}", r.scale) : ""));
  else if (left_out_ >= 4 && std::has_single_bit(left_out_))
    say(fmt::format("step {}: {} steps in a row are left out now", step, left_out_));
}

void RunLogger::end_left_out(const std::string& what) {
  if (left_out_ > 1)
    say(fmt::format("{} after {} steps in a row were left out, {} to {}", what, left_out_,
                    left_out_last_ - static_cast<std::int64_t>(left_out_) + 1, left_out_last_));
  left_out_ = 0;
}

void RunLogger::step_done(const StepResult& r, std::int64_t step, std::int64_t done_in_epoch) {
  phases_ += r.phases;
  if (!first_) return;
  find_stragglers(r, step);
  samples_ += r.samples;
  window_samples_ += r.samples;
  window_loss_ += r.loss * r.samples;
  window_bytes_ += static_cast<double>(r.received_bytes);
  all_bytes_ += static_cast<double>(r.received_bytes);
  ++received_steps_;
  ++all_steps_;
  std::vector<std::pair<std::string, double>> shown{{"loss", r.loss}};
  if (scaled_) shown.emplace_back("scale", r.scale);
  if (r.skipped > 0) shown.emplace_back("skipped", static_cast<double>(r.skipped));
  progress_->update(static_cast<std::uint64_t>(done_in_epoch), std::move(shown));
  note_left_out(r, step);
  note_staleness(r);
  last_ = r;
  if (step % config_.observe.every_steps == 0) record(step);
}

void RunLogger::epoch_ends(std::int64_t step) {
  if (first_ && window_samples_ > 0) record(step);  // the time of an evaluation is no training time
}

// The mean of the steps since the last record.
void RunLogger::note_staleness(const StepResult& r) {
  if (!r.staleness) return;
  if (!window_staleness_) {
    window_staleness_.emplace();
    window_steps_ = 0;
  }
  window_staleness_->mean += (r.staleness->mean - window_staleness_->mean) / ++window_steps_;
  window_staleness_->most = std::max(window_staleness_->most, r.staleness->most);
}

void RunLogger::record(std::int64_t step) {
  const double took = elapsed(window_start_), seconds = earlier_seconds_ + elapsed(start_);
  trained_seconds_ += took;
  const TrainingPoint point{.step = step,
                            .loss = window_loss_ / window_samples_,
                            .lr = last_.lr,
                            .samples_per_second = window_samples_ / took,
                            .grad_norm_squared = last_.verdict.squared_after / last_.scale / last_.scale,
                            .clip = last_.verdict.clip,
                            .scale = last_.scale,
                            .skipped = last_.skipped,
                            .staleness = std::exchange(window_staleness_, std::nullopt),
                            .received_bytes = window_bytes_ / received_steps_};
  const auto x = static_cast<double>(step);
  RunCurves::add(curves_.loss, x, point.loss, seconds);
  RunCurves::add(curves_.rate, x, point.samples_per_second, seconds);
  RunCurves::add(curves_.lr, x, point.lr, seconds);
  if (scaled_) RunCurves::add(curves_.scale, x, point.scale, seconds);
  if (comm_.size() > 1) RunCurves::add(curves_.received, x, point.received_bytes / 1e6, seconds);
  outputs_->training(point, scaled_);
  window_samples_ = window_loss_ = window_bytes_ = received_steps_ = 0;
  window_start_ = Clock::now();
}

void RunLogger::evaluated(const Evaluation& test, std::int64_t step, std::int64_t epoch) {
  if (!first_ || test.samples == 0) return;
  const double x = static_cast<double>(step), seconds = earlier_seconds_ + elapsed(start_);
  RunCurves::add(curves_.test_loss, x, test.loss, seconds);
  for (std::size_t k = 0; k < test.metrics.size(); ++k) curves_.add_metric(k, x, test.metrics[k].value, seconds);
  if (test.disagreement) RunCurves::add(curves_.disagreement, x, *test.disagreement, seconds);
  if (test.residual) RunCurves::add(curves_.residual, x, *test.residual, seconds);
  outputs_->evaluation(test, step, epoch);
  progress_->finish();
  std::string line = fmt::format("epoch {}: training loss {:.4f}, test loss {:.4f}", epoch,
                                 curves_.loss.y.empty() ? 0.0 : curves_.loss.y.back(), test.loss);
  for (const MetricValue& metric : test.metrics) line += fmt::format(", test {} {}", metric.name, metric.text());
  say(line);
}

void RunLogger::show_values(TrainLoop& loop, std::int64_t step) {
  const bool sharded = loop.engine().shards_parameters();  // then every rank helps to gather them, one after the other
  const bool writes = outputs_ && outputs_->has_tensorboard();
  if (!config_.observe.histograms || !config_.observe.tensorboard || (!writes && !sharded)) return;
  for (const auto& [name, p] : loop.model().named_parameters()) {
    std::optional<nn::Unsharder::Hold> hold;
    if (sharded) hold.emplace(loop.engine().unsharder().hold(p));
    if (writes) outputs_->histogram("parameters/" + name, step, p);
  }
}

void RunLogger::show_images(const at::Tensor& batch) {
  if (!first_ || !outputs_->has_tensorboard() || batch.dim() != 4 || (batch.size(1) != 1 && batch.size(1) != 3)) return;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(batch.size(0), config_.observe.images); ++i)
    outputs_->image(static_cast<int>(i), batch[i]);
}

void RunLogger::compare_with_plan(const StepProfiler& profiler) {
  if (!first_ || profiler.steps() == 0) return;
  const std::string path = forecast_file(config_);
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    return say(fmt::format("there is no forecast in {}: `cohort train --plan` makes it before it trains", path));
  if (progress_) progress_->finish();
  BestEffort("plan.json").attempt([&] {
    const plan::Comparison found = plan::compare(checkpoint::read_regular_file(path, kMostConfigBytes), profiler.measured_step());
    say("\n" + found.text);
    write_file_atomically(folder_ + "/plan.json", found.json);
  });
}

std::string RunLogger::merge_traces() {
  if (Trace::on()) trace_effort_.attempt([] { Trace::stop(); });
  comm_.barrier({.name = "traces are written"});
  if (!first_) return {};
  std::vector<std::string> files;
  for (int r = 0; r < comm_.size(); ++r) files.push_back(rank_trace(folder_, r));
  const std::string merged = folder_ + "/trace.json";
  return BestEffort("trace.json").attempt([&] { observe::merge_files(files, merged); }) ? merged : "";
}

RunSummary RunLogger::finish(const Evaluation& test, const TrainLoop& loop) {
  if (progress_) progress_->finish();
  end_left_out("training ends");
  RunSummary summary{.steps = loop.step(), .test = test, .seconds = elapsed(start_), .folder = folder_};
  summary.skipped = loop.scale().skipped();
  summary.scale = scaled_ ? loop.scale().value() : 0;
  std::vector<double> all(static_cast<std::size_t>(comm_.size()) * observe::kPhases);
  comm_.all_gather(collective::piece(std::span<double>(phases_.seconds)), collective::piece(std::span<double>(all)),
                   {.name = "times of the ranks"});
  for (std::size_t i = 0; i < all.size(); ++i) summary.phases.seconds[i % observe::kPhases] += all[i];
  if (config_.observe.trace) summary.trace = merge_traces();
  if (!first_) return summary;
  if (comm_.size() > 1 && all_steps_ > 0) summary.received = all_bytes_ / all_steps_;
  if (comm_.size() > 1) summary.all_reduce = loop.all_reduce_bytes();
  outputs_->flush();
  summary.train_loss = curves_.loss.y.empty() ? 0 : curves_.loss.y.back();
  summary.samples_per_second = trained_seconds_ > 0 ? samples_ / trained_seconds_ : 0;
  summary.slow = stragglers_.text();
  if (config_.observe.report)
    report_effort_.attempt([&] { summary.report = write_run_report(config_, config_text_, summary, curves_, all); });
  return summary;
}

}  // namespace cohort::train
