#include "cohort/train/loop/metric_outputs.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::train {
namespace {

constexpr std::size_t kMostMetricsBytes = 4_GiB;

std::string metrics_path(const TrainConfig& config) { return run_folder(config) + "/metrics.jsonl"; }

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

MetricOutputs::MetricOutputs(const TrainConfig& config, Rank rank, std::int64_t step)
    : earlier_(keep_lines_until(metrics_path(config), step)), metrics_(metrics_path(config)) {
  if (config.observe.tensorboard) {
    observe::EventOptions options;
    if (step > 0) options.resumes_at = step;
    events_ = std::make_unique<observe::EventWriter>(run_folder(config) + "/tensorboard", rank, options);
  }
  if (config.observe.prometheus_port >= 0)
    server_ =
        std::make_unique<observe::HttpServer>(observe::exporter_routes(registry_, "cohort train, run " + config.name),
                                              observe::HttpOptions{.port = static_cast<std::uint16_t>(config.observe.prometheus_port)});
}

std::string MetricOutputs::url() const { return server_ ? server_->url("/metrics") : ""; }

void MetricOutputs::training(const TrainingPoint& p, bool scaled) {
  metrics_.write({{"step", p.step},
                  {"loss", p.loss},
                  {"lr", p.lr},
                  {"samples_per_s", p.samples_per_second},
                  {"grad_norm_squared", p.grad_norm_squared},
                  {"clip", p.clip},
                  {"scale", p.scale},
                  {"skipped", p.skipped}});
  if (events_) {
    events_->scalar("train/loss", p.step, p.loss);
    events_->scalar("train/lr", p.step, p.lr);
    events_->scalar("train/samples_per_s", p.step, p.samples_per_second);
    events_->scalar("train/grad_norm_squared", p.step, p.grad_norm_squared);
    if (scaled) events_->scalar("train/loss_scale", p.step, p.scale);
  }
  registry_.gauge("cohort_step", "updates made").set(static_cast<double>(p.step));
  registry_.gauge("cohort_train_loss", "mean loss of the last steps").set(p.loss);
  registry_.gauge("cohort_loss_scale", "what the loss is multiplied with").set(p.scale);
  registry_.gauge("cohort_skipped_steps", "steps called off because a gradient was not finite").set(static_cast<double>(p.skipped));
  registry_.gauge("cohort_samples_per_second", "samples of all ranks a second").set(p.samples_per_second);
}

void MetricOutputs::evaluation(const Evaluation& test, std::int64_t step, std::int64_t epoch) {
  metrics_.write({{"step", step}, {"epoch", epoch}, {"test_loss", test.loss}, {"test_accuracy", test.accuracy}});
  if (events_) {
    events_->scalar("test/loss", step, test.loss);
    events_->scalar("test/accuracy", step, test.accuracy);
    events_->flush();
  }
  registry_.gauge("cohort_test_accuracy", "share of the test set that is right").set(test.accuracy);
}

void MetricOutputs::slow_ranks(std::size_t count) {
  registry_.gauge("cohort_slow_ranks", "ranks whose throughput is below 0.8 of the median").set(static_cast<double>(count));
}

void MetricOutputs::rank_slow(const observe::StragglerDetector::Change& change) {
  registry_.gauge("cohort_rank_slow", "1: its throughput is below 0.8 of the median", {{"rank", fmt::to_string(change.rank.value)}})
      .set(change.slow);
}

void MetricOutputs::histogram(const std::string& name, std::int64_t step, const at::Tensor& tensor) {
  if (!events_) return;
  const at::Tensor values = tensor.detach().cpu().to(at::kFloat).contiguous();
  events_->histogram(name, step, {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
}

void MetricOutputs::image(int number, const at::Tensor& picture) {
  if (!events_) return;
  at::Tensor one = picture.detach().to(at::kFloat);
  one = ((one - one.min()) / (one.max() - one.min()).clamp_min(1e-6) * 255).to(at::kByte).permute({1, 2, 0}).contiguous();
  events_->image(fmt::format("images/{}", number), 0,
                 {.width = static_cast<int>(one.size(1)),
                  .height = static_cast<int>(one.size(0)),
                  .channels = static_cast<int>(one.size(2)),
                  .pixels = {one.data_ptr<std::uint8_t>(), static_cast<std::size_t>(one.numel())}});
}

void MetricOutputs::flush() {
  if (events_) events_->flush();
}

}  // namespace cohort::train
