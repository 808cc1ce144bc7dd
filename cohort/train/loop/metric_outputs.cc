#include "cohort/train/loop/metric_outputs.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/regular_file.h"

namespace cohort::train {
namespace {

constexpr std::size_t kMostMetricsBytes = 4_GiB;

std::unique_ptr<observe::HttpServer> listen(const observe::HttpRoutes& routes, int port) {
  return std::make_unique<observe::HttpServer>(routes, observe::HttpOptions{.port = static_cast<std::uint16_t>(port)});
}

}  // namespace

MetricOutputs::MetricOutputs(const TrainConfig& config, Rank rank, std::int64_t step, std::function<bool()> may_write)
    : folder_(run_folder(config)),
      rank_(rank),
      step_(step),
      wants_events_(config.observe.tensorboard),
      port_(config.observe.prometheus_port),
      title_("cohort train, run " + config.name),
      may_write_(std::move(may_write)) {
  earlier_effort_.attempt([&] { read_earlier_lines(); });
  open_metrics();
  open_events();
  open_server();
}

void MetricOutputs::read_earlier_lines() {
  const std::string path = folder_ + "/metrics.jsonl";
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return;
  const std::string text = checkpoint::read_regular_file(path, kMostMetricsBytes);  // at most a warning, never a wait for a FIFO's writer
  std::string kept;
  for (const auto line : split(text, '\n')) {
    auto fields = nlohmann::json::parse(line, nullptr, false);
    if (!fields.is_object() || !fields.contains("step") || !fields["step"].is_number_integer() || fields["step"] > step_) continue;
    kept.append(line).append("\n");
    earlier_.push_back(std::move(fields));
  }
  if (kept != text) shorter_ = std::move(kept);
}

// The files are another job's now: records that wait in memory are not written either.
bool MetricOutputs::allowed() {
  if (closed_ || !may_write_ || may_write_()) return !closed_;
  closed_ = true;
  metrics_.reset();
  if (events_) events_->discard();
  events_.reset();
  return false;
}

bool MetricOutputs::open_metrics() {
  if (!allowed()) return false;
  if (metrics_) return true;
  return metrics_effort_.attempt([&] {
    observe::make_folders(folder_);
    const std::string path = folder_ + "/metrics.jsonl";
    if (shorter_) write_file_atomically(path, *shorter_);
    shorter_.reset();
    metrics_.emplace(path);
  });
}

bool MetricOutputs::open_events() {
  if (!wants_events_ || !allowed()) return false;
  if (events_) return true;
  return events_effort_.attempt([&] {
    observe::EventOptions options;
    if (step_ > 0) options.resumes_at = step_;
    events_ = std::make_unique<observe::EventWriter>(folder_ + "/tensorboard", rank_, options);
  });
}

// The port asked for may belong to another program, or to a rank 0 before this one that is stopped.
void MetricOutputs::open_server() {
  if (server_ || port_ < 0) return;
  server_effort_.attempt([&] {
    const observe::HttpRoutes routes = observe::exporter_routes(registry_, title_);
    try {
      server_ = listen(routes, port_);
    } catch (const std::exception& problem) {
      if (port_ == 0) throw;
      const std::string taken = problem.what();
      server_ = listen(routes, 0);
      log_warning("{}; the metrics are at {} instead", taken, url());
    }
  });
}

std::string MetricOutputs::url() const { return server_ ? server_->url("/metrics") : ""; }

void MetricOutputs::training(const TrainingPoint& p, bool scaled) {
  std::vector<observe::Field> fields{{"step", p.step},
                                     {"loss", p.loss},
                                     {"lr", p.lr},
                                     {"samples_per_s", p.samples_per_second},
                                     {"grad_norm_squared", p.grad_norm_squared},
                                     {"clip", p.clip},
                                     {"scale", p.scale},
                                     {"skipped", p.skipped},
                                     {"received_bytes", p.received_bytes}};
  if (p.staleness) {
    fields.emplace_back("staleness", p.staleness->mean);
    fields.emplace_back("most_stale", p.staleness->most);
  }
  line(fields);
  if (open_events()) {
    events_->scalar("train/loss", p.step, p.loss);
    events_->scalar("train/lr", p.step, p.lr);
    events_->scalar("train/samples_per_s", p.step, p.samples_per_second);
    events_->scalar("train/grad_norm_squared", p.step, p.grad_norm_squared);
    events_->scalar("train/received_bytes", p.step, p.received_bytes);
    if (scaled) events_->scalar("train/loss_scale", p.step, p.scale);
    if (p.staleness) events_->scalar("train/staleness", p.step, p.staleness->mean);
  }
  if (p.staleness) registry_.gauge("cohort_staleness", "steps that what a rank read from servers was behind").set(p.staleness->mean);
  registry_.gauge("cohort_step", "updates made").set(static_cast<double>(p.step));
  registry_.gauge("cohort_train_loss", "mean loss of the last steps").set(p.loss);
  registry_.gauge("cohort_loss_scale", "what the loss is multiplied with").set(p.scale);
  registry_.gauge("cohort_skipped_steps", "steps called off because a gradient was not finite").set(static_cast<double>(p.skipped));
  registry_.gauge("cohort_received_bytes", "bytes that rank 0 receives from other ranks in a step").set(p.received_bytes);
  registry_.gauge("cohort_samples_per_second", "samples of all ranks a second").set(p.samples_per_second);
}

void MetricOutputs::evaluation(const Evaluation& test, std::int64_t step, std::int64_t epoch) {
  std::vector<observe::Field> fields{{"step", step}, {"epoch", epoch}, {"test_loss", test.loss}};
  for (const MetricValue& metric : test.metrics) fields.emplace_back("test_" + metric.name, metric.value);
  if (test.disagreement) fields.emplace_back("disagreement", *test.disagreement);
  if (test.residual) fields.emplace_back("residual_norm", *test.residual);
  line(fields);
  if (open_events()) {
    events_->scalar("test/loss", step, test.loss);
    if (test.disagreement) events_->scalar("replicas/disagreement", step, *test.disagreement);
    if (test.residual) events_->scalar("codec/residual_norm", step, *test.residual);
    for (const MetricValue& metric : test.metrics) events_->scalar("test/" + metric.name, step, metric.value);
    events_->flush();
  }
  const bool had_page = server_ != nullptr;
  open_server();
  if (server_ && !had_page) log_info("metrics at {}", url());
  registry_.gauge("cohort_test_loss", "mean loss over the test set").set(test.loss);
  if (test.disagreement)
    registry_.gauge("cohort_disagreement", "distance of the ranks' models from that of the job, by its norm").set(*test.disagreement);
  if (test.residual) registry_.gauge("cohort_residual_norm", "norm of what a codec has kept of a rank's gradients").set(*test.residual);
  for (const MetricValue& metric : test.metrics)
    registry_.gauge("cohort_test_" + metric.name, fmt::format("mean {} over the test set", metric.name)).set(metric.value);
}

void MetricOutputs::line(std::span<const observe::Field> fields) {
  if (open_metrics()) metrics_->write(fields);
}

void MetricOutputs::slow_ranks(std::size_t count) {
  registry_.gauge("cohort_slow_ranks", "ranks whose throughput is below 0.8 of the median").set(static_cast<double>(count));
}

void MetricOutputs::rank_slow(const observe::StragglerDetector::Change& change) {
  registry_.gauge("cohort_rank_slow", "1: its throughput is below 0.8 of the median", {{"rank", fmt::to_string(change.rank.value)}})
      .set(change.slow);
}

void MetricOutputs::histogram(const std::string& name, std::int64_t step, const at::Tensor& tensor) {
  if (!events_ || !allowed()) return;
  const at::Tensor values = tensor.detach().cpu().to(at::kFloat).contiguous();
  events_->histogram(name, step, {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
}

void MetricOutputs::image(int number, const at::Tensor& picture) {
  if (!events_ || !allowed()) return;
  at::Tensor one = picture.detach().to(at::kFloat);
  one = ((one - one.min()) / (one.max() - one.min()).clamp_min(1e-6) * 255).to(at::kByte).permute({1, 2, 0}).contiguous();
  events_->image(fmt::format("images/{}", number), 0,
                 {.width = static_cast<int>(one.size(1)),
                  .height = static_cast<int>(one.size(0)),
                  .channels = static_cast<int>(one.size(2)),
                  .pixels = {one.data_ptr<std::uint8_t>(), static_cast<std::size_t>(one.numel())}});
}

void MetricOutputs::flush() {
  if (events_ && allowed()) events_->flush();
}

}  // namespace cohort::train
