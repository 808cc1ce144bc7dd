#include "cohort/train/loop/chronicle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cohort/base/bytes.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/base/trace.h"
#include "cohort/nn/residency.h"
#include "cohort/observe/clocks.h"
#include "cohort/observe/timeline.h"

namespace cohort {
namespace {

constexpr std::size_t kMostMetricsBytes = 4_GiB;
// Rates are of so many steps, and so long, at least: one bad step of a busy machine weighs little, and one turn of a rank on a core that it
// shares. The first are left out; three times so many name a rank.
constexpr std::int64_t kPaceSteps = 4;
constexpr double kPaceSeconds = 0.1;

double since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

void point(observe::Series& series, double x, double y, double wall) {
  series.x.push_back(x);
  series.y.push_back(y);
  series.wall.push_back(wall);
}

std::string rank_trace(const std::string& folder, int rank) { return fmt::format("{}/trace/rank{}.json", folder, rank); }

// A run that goes on from step n has not yet made the steps after n, whatever it wrote about them before it was killed: those lines go.
std::vector<nlohmann::json> keep_lines_until(const std::string& path, std::int64_t step) {
  std::vector<nlohmann::json> lines;
  if (!std::filesystem::exists(path)) return lines;
  const std::string text = read_file(path, kMostMetricsBytes);
  std::string kept;
  for (const auto line : split(text, '\n')) {
    auto fields = nlohmann::json::parse(line, nullptr, false);
    if (!fields.is_object() || !fields.contains("step") || !fields["step"].is_number_integer() || fields["step"] > step) continue;
    kept.append(line).append("\n");
    lines.push_back(std::move(fields));
  }
  if (kept != text) write_file_atomically(path, kept);
  return lines;
}

}  // namespace

Chronicle::Chronicle(collective::Communicator& comm, const TrainConfig& config, std::string config_text, const Learner& learner)
    : comm_(comm),
      config_(config),
      config_text_(std::move(config_text)),
      folder_(run_folder(config)),
      first_(comm.rank().value == 0),
      scaled_(learner.scale().scales()) {
  if (config.observe.trace) {
    std::filesystem::create_directories(folder_ + "/trace");
    Trace::set_clock_offset(observe::clock_offset_to_first(comm).offset_ns);
    Trace::start(rank_trace(folder_, comm.rank().value), comm.rank());
  }
  if (!first_) return;
  remember(keep_lines_until(folder_ + "/metrics.jsonl", learner.step()));
  metrics_ = std::make_unique<observe::MetricsFile>(folder_ + "/metrics.jsonl");
  if (config.observe.tensorboard) {
    observe::EventOptions options;
    if (learner.step() > 0) options.resumes_at = learner.step();
    events_ = std::make_unique<observe::EventWriter>(folder_ + "/tensorboard", comm.rank(), options);
  }
  if (config.observe.prometheus_port >= 0) {
    server_ =
        std::make_unique<observe::HttpServer>(observe::exporter_routes(registry_, "cohort train, run " + config.name),
                                              observe::HttpOptions{.port = static_cast<std::uint16_t>(config.observe.prometheus_port)});
    say(fmt::format("metrics at {}", server_->url("/metrics")));
  }
  observe::ProgressOptions options;
  if (const char* tty = std::getenv("COHORT_TTY"); tty != nullptr && *tty != 0) terminal_ = ::open(tty, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  // The launcher's own terminal: a bar cannot be drawn through its pipe. Without one, lines stand among those of say(), in order.
  options.fd = terminal_ >= 0 ? terminal_ : STDOUT_FILENO;
  progress_ = std::make_unique<observe::Progress>(options);
}

// The curves of the report begin where the run did, not where it was last resumed. The time between is nobody's.
void Chronicle::remember(const std::vector<nlohmann::json>& lines) {
  const auto number = [](const nlohmann::json& line, const char* key) { return line.contains(key) && line[key].is_number(); };
  const double begin = lines.empty() || !number(lines.front(), "time") ? 0 : lines.front()["time"].get<double>();
  const std::pair<observe::Series&, const char*> all[] = {
      {loss_, "loss"}, {lr_, "lr"}, {rate_, "samples_per_s"}, {test_loss_, "test_loss"}, {accuracy_, "test_accuracy"}, {scale_, "scale"}};
  for (const auto& line : lines)
    for (const auto& [series, key] : all)
      if (number(line, key) && number(line, "time"))
        point(series, line["step"].get<double>(), line[key].get<double>() * (&series == &accuracy_ ? 100 : 1),
              line["time"].get<double>() - begin);
  for (const auto& line : lines) {
    if (!number(line, "slow_rank") || !number(line, "of_median")) continue;
    const auto rank = line["slow_rank"].get<std::int64_t>(), step = line["step"].get<std::int64_t>();
    if (line.value("slow", true))
      slow_.push_back({rank, step, -1, line["of_median"].get<double>()});
    else
      ends_slowness(rank, step);
  }
  for (const auto& slow : std::vector(slow_)) ends_slowness(slow.rank, lines.back()["step"].get<std::int64_t>());  // ranks are others now
  if (!lines.empty() && number(lines.back(), "time")) before_ = lines.back()["time"].get<double>() - begin;
}

Chronicle::~Chronicle() {
  progress_.reset();
  if (terminal_ >= 0) ::close(terminal_);
}

void Chronicle::say(const std::string& line) {
  if (!first_) return;
  if (progress_) progress_->clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Chronicle::epoch_starts(std::int64_t epoch, std::int64_t epochs, std::int64_t done, std::int64_t total) {
  window_start_ = Clock::now();
  if (!first_) return;
  progress_->start(fmt::format("epoch {}/{}", epoch + 1, epochs), static_cast<std::uint64_t>(total),
                   static_cast<double>(config_.data.batch) * config_.data.accumulate * comm_.size());
  progress_->update(static_cast<std::uint64_t>(done));
}

void Chronicle::note(const std::string& line, std::initializer_list<observe::Field> facts) {
  if (!first_) return;
  say(line);
  metrics_->write(facts);
}

void Chronicle::ends_slowness(std::int64_t rank, std::int64_t step) {
  for (auto& slow : slow_)
    if (slow.rank == rank && slow.to < 0) slow.to = step;
}

// Rates are of several steps together: samples by seconds, which one long step does not bend as it bends a mean of rates.
void Chronicle::watch(const StepResult& r, std::int64_t step) {
  window_paces_.resize(r.paces.size());
  window_counts_.resize(r.paces.size());
  for (std::size_t i = 0; i < r.paces.size(); ++i) {
    window_paces_[i] += r.paces[i];
    window_counts_[i] += r.paces[i] > 0 ? 1 : 0;
  }
  if (++window_steps_ < kPaceSteps || since(window_began_) < kPaceSeconds) return;
  const bool counts = std::exchange(warm_, true);  // a rank that was started now touches its memory for the first time
  for (std::size_t i = 0; counts && i < r.paces.size(); ++i)
    if (window_counts_[i] > 0) stragglers_.saw(Rank{static_cast<std::int32_t>(i)}, window_counts_[i] / window_paces_[i]);
  window_paces_.clear();
  window_counts_.clear();
  window_steps_ = 0;
  window_began_ = Clock::now();
  const auto changes = stragglers_.changes();
  registry_.gauge("cohort_slow_ranks", "ranks whose throughput is below 0.8 of the median")
      .set(static_cast<double>(stragglers_.slow().size()));
  for (const auto& change : changes) {
    const auto rank = change.rank.value;
    registry_.gauge("cohort_rank_slow", "1: its throughput is below 0.8 of the median", {{"rank", fmt::to_string(rank)}}).set(change.slow);
    note(fmt::format("step {}: {}", step, describe(change)),
         {{"step", step}, {"slow_rank", rank}, {"slow", change.slow}, {"of_median", change.of_median}});
    if (change.slow)
      slow_.push_back({rank, step, -1, change.of_median});
    else
      ends_slowness(rank, step);
  }
}

std::string Chronicle::slow_text() const {
  std::string text;
  for (const auto& slow : slow_)
    text += fmt::format("{}rank {} ({:.2f} of the median) from step {} on{}", text.empty() ? "" : "; ", slow.rank, slow.of_median,
                        slow.from, slow.to < 0 ? "" : fmt::format(" to {}", slow.to));
  return text;
}

void Chronicle::step_done(const StepResult& r, std::int64_t step, std::int64_t done_in_epoch) {
  phases_ += r.phases;
  if (!first_) return;
  watch(r, step);
  samples_ += r.samples;
  window_samples_ += r.samples;
  window_loss_ += r.loss * r.samples;
  std::vector<std::pair<std::string, double>> shown{{"loss", r.loss}};
  if (scaled_) shown.emplace_back("scale", r.scale);
  if (r.skipped > 0) shown.emplace_back("skipped", static_cast<double>(r.skipped));
  progress_->update(static_cast<std::uint64_t>(done_in_epoch), std::move(shown));
  if (!r.verdict.committed)
    say(fmt::format("step {}: a gradient was not finite on some rank{}; the step was left out on all of them", step,
                    scaled_ ? fmt::format(" at loss scale {}", r.scale) : ""));
  last_ = r;
  if (step % config_.observe.every_steps == 0) record(step);
}

void Chronicle::epoch_ends(std::int64_t step) {
  if (first_ && window_samples_ > 0) record(step);  // the time of an evaluation is nobody's training time
}

void Chronicle::record(std::int64_t step) {
  const StepResult& r = last_;
  const double unscaled = r.verdict.squared_after / r.scale / r.scale;
  const double took = since(window_start_), rate = window_samples_ / took, loss = window_loss_ / window_samples_,
               wall = before_ + since(start_);
  trained_seconds_ += took;
  const auto x = static_cast<double>(step);
  point(loss_, x, loss, wall);
  point(rate_, x, rate, wall);
  point(lr_, x, r.lr, wall);
  if (scaled_) point(scale_, x, r.scale, wall);
  metrics_->write({{"step", step},
                   {"loss", loss},
                   {"lr", r.lr},
                   {"samples_per_s", rate},
                   {"grad_norm_squared", unscaled},
                   {"clip", r.verdict.clip},
                   {"scale", r.scale},
                   {"skipped", r.skipped}});
  if (events_) {
    events_->scalar("train/loss", step, loss);
    events_->scalar("train/lr", step, r.lr);
    events_->scalar("train/samples_per_s", step, rate);
    events_->scalar("train/grad_norm_squared", step, unscaled);
    if (scaled_) events_->scalar("train/loss_scale", step, r.scale);
  }
  registry_.gauge("cohort_step", "updates made").set(x);
  registry_.gauge("cohort_train_loss", "mean loss of the last steps").set(loss);
  registry_.gauge("cohort_loss_scale", "what the loss is multiplied with").set(r.scale);
  registry_.gauge("cohort_skipped_steps", "steps called off because a gradient was not finite").set(static_cast<double>(r.skipped));
  registry_.gauge("cohort_samples_per_second", "samples of all ranks a second").set(rate);
  window_samples_ = window_loss_ = 0;
  window_start_ = Clock::now();
}

void Chronicle::evaluated(const Evaluation& test, std::int64_t step, std::int64_t epoch) {
  if (!first_ || test.samples == 0) return;
  const auto x = static_cast<double>(step);
  point(test_loss_, x, test.loss, before_ + since(start_));
  point(accuracy_, x, 100 * test.accuracy, before_ + since(start_));
  metrics_->write({{"step", step}, {"epoch", epoch}, {"test_loss", test.loss}, {"test_accuracy", test.accuracy}});
  if (events_) {
    events_->scalar("test/loss", step, test.loss);
    events_->scalar("test/accuracy", step, test.accuracy);
    events_->flush();
  }
  registry_.gauge("cohort_test_accuracy", "share of the test set that is right").set(test.accuracy);
  progress_->finish();
  say(fmt::format("epoch {}: training loss {:.4f}, test loss {:.4f}, test accuracy {:.2f} %", epoch, loss_.y.empty() ? 0.0 : loss_.y.back(),
                  test.loss, 100 * test.accuracy));
}

void Chronicle::show_values(Learner& learner, std::int64_t step) {
  const bool apart = learner.engine().shards_parameters();  // then every rank helps to bring them together, one after the other
  if (!config_.observe.histograms || !config_.observe.tensorboard || (!events_ && !apart)) return;
  for (const auto& [name, p] : learner.model().named_parameters()) {
    std::optional<nn::Residency::Hold> here;
    if (apart) here.emplace(learner.engine().residency().hold(p));
    if (!events_) continue;
    const at::Tensor values = p.detach().cpu().to(at::kFloat).contiguous();
    events_->histogram("parameters/" + name, step, {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  }
}

void Chronicle::show_images(const at::Tensor& batch) {
  if (!events_ || batch.dim() != 4 || (batch.size(1) != 1 && batch.size(1) != 3)) return;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(batch.size(0), config_.observe.images); ++i) {
    at::Tensor one = batch[i].detach().to(at::kFloat);
    one = ((one - one.min()) / (one.max() - one.min()).clamp_min(1e-6) * 255).to(at::kByte).permute({1, 2, 0}).contiguous();
    events_->image(fmt::format("images/{}", i), 0,
                   {.width = static_cast<int>(one.size(1)),
                    .height = static_cast<int>(one.size(0)),
                    .channels = static_cast<int>(one.size(2)),
                    .pixels = {one.data_ptr<std::uint8_t>(), static_cast<std::size_t>(one.numel())}});
  }
}

void Chronicle::hold_against_plan(const Yardstick& yardstick) {
  if (!first_ || yardstick.steps() == 0) return;
  const std::string path = forecast_file(config_);
  if (!std::filesystem::exists(path))
    return say(fmt::format("there is no forecast in {}: `cohort train --plan` makes it before it trains", path));
  if (progress_) progress_->finish();
  const plan::Comparison found = plan::compare(read_file(path), yardstick.happened());
  write_file_atomically(folder_ + "/plan.json", found.json);
  say("\n" + found.text);
}

std::string Chronicle::merge_traces() {
  Trace::stop();
  comm_.barrier({.name = "traces are written"});
  if (!first_) return {};
  std::vector<std::string> files;
  for (int r = 0; r < comm_.size(); ++r) files.push_back(rank_trace(folder_, r));
  observe::merge_files(files, folder_ + "/trace.json");
  return folder_ + "/trace.json";
}

RunSummary Chronicle::finish(const Evaluation& test, const Learner& learner) {
  if (progress_) progress_->finish();
  RunSummary summary{.steps = learner.step(), .test = test, .seconds = since(start_), .folder = folder_};
  summary.skipped = learner.scale().skipped();
  summary.scale = scaled_ ? learner.scale().value() : 0;
  std::vector<double> all(static_cast<std::size_t>(comm_.size()) * observe::kPhases);
  comm_.all_gather(collective::piece(std::span<double>(phases_.seconds)), collective::piece(std::span<double>(all)),
                   {.name = "times of the ranks"});
  for (std::size_t i = 0; i < all.size(); ++i) summary.phases.seconds[i % observe::kPhases] += all[i];
  if (config_.observe.trace) summary.trace = merge_traces();
  if (!first_) return summary;
  if (events_) events_->flush();
  summary.train_loss = loss_.y.empty() ? 0 : loss_.y.back();
  summary.samples_per_second = trained_seconds_ > 0 ? samples_ / trained_seconds_ : 0;
  summary.slow = slow_text();
  if (config_.observe.report) summary.report = write_report(summary, all);
  return summary;
}

std::string Chronicle::write_report(const RunSummary& summary, const std::vector<double>& seconds) const {
  observe::Report report{.title = config_.name,
                         .subtitle = fmt::format("{} on {} ranks, {:.0f} s", config_.model, comm_.size(), summary.seconds)};
  if (summary.test.samples > 0) report.highlights.push_back({"test accuracy", fmt::format("{:.2f} %", 100 * summary.test.accuracy)});
  report.highlights.push_back({"samples/s", fmt::format("{:.0f}", summary.samples_per_second)});
  report.highlights.push_back({"updates", fmt::format("{}", summary.steps - summary.skipped)});
  if (summary.skipped > 0 || scaled_) report.highlights.push_back({"steps left out", fmt::format("{}", summary.skipped)});
  if (!summary.slow.empty()) report.highlights.push_back({"slow ranks", summary.slow});
  report.charts.push_back({.title = "Loss", .series = {loss_, test_loss_}});
  if (!accuracy_.x.empty()) report.charts.push_back({.title = "Test accuracy", .series = {accuracy_}, .unit = "%"});
  report.charts.push_back({.title = "Learning rate", .series = {lr_}});
  if (!scale_.x.empty()) report.charts.push_back({.title = "Loss scale", .series = {scale_}});
  report.charts.push_back({.title = "Speed", .series = {rate_}, .unit = "samples/s"});
  for (int r = 0; r < comm_.size(); ++r) {
    observe::RankPhases rank{.name = fmt::format("rank {}", r), .seconds = {}};
    for (std::size_t p = 0; p < observe::kPhases; ++p)
      rank.seconds.seconds[p] = seconds[static_cast<std::size_t>(r) * observe::kPhases + p];
    report.phases.push_back(rank);
  }
  report.config = config_text_;
  const std::string path = folder_ + "/report.html";
  try {
    observe::write_report(path, report);
  } catch (const Failure& failure) {  // what was learned matters more than what is told about it
    log_error("no report: {}", failure.what());
    return {};
  }
  return path;
}

std::string summary_text(const RunSummary& s) {
  const auto shares = s.phases.shares();
  observe::Table table{.columns = {{.name = "", .align = observe::Align::left}, {.name = ""}}};
  if (s.test.samples > 0) {
    table.add({"test accuracy", fmt::format("{:.2f} %", 100 * s.test.accuracy)});
    table.add({"test loss", fmt::format("{:.4f}", s.test.loss)});
  }
  table.add({"training loss", fmt::format("{:.4f}", s.train_loss)});
  table.add({"updates", fmt::format("{}", s.steps - s.skipped)});
  if (s.skipped > 0 || s.scale > 0) table.add({"steps left out", fmt::format("{}", s.skipped)});
  if (s.scale > 0) table.add({"loss scale", fmt::format("{}", s.scale)});
  if (!s.slow.empty()) table.add({"slow ranks", s.slow});
  table.add({"time", fmt::format("{:.1f} s", s.seconds)});
  table.add({"samples/s", fmt::format("{:.0f}", s.samples_per_second)});
  for (std::size_t p = 0; p < observe::kPhases; ++p)
    table.add({fmt::format("time in {}", observe::kPhaseNames[p]), fmt::format("{:.1f} %", 100 * shares[p])});
  std::string text = observe::table_text(table);
  for (int line = 0; line < 2; ++line) text.erase(0, text.find('\n') + 1);  // columns without names need no head
  if (!s.report.empty()) text += fmt::format("report   {}\n", s.report);
  if (!s.trace.empty()) text += fmt::format("trace    {} (open it in ui.perfetto.dev)\n", s.trace);
  return text + fmt::format("run      {}\n", s.folder);
}

}  // namespace cohort
