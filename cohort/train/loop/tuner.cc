#include "cohort/train/loop/tuner.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/base/text.h"
#include "cohort/nn/autocast.h"

namespace cohort::train {
namespace {

constexpr int kWarmSteps = 2, kTimedSteps = 5;  // steps a candidate

std::vector<engine::EngineOptions> candidates(const TuneSetting& setting) {
  std::vector<engine::EngineOptions> all;
  const int most = setting.cores > setting.ranks_here ? 2 : 1;  // without a free core one lane is tried, more would compete for cores
  for (int lanes = 0; lanes <= most; ++lanes)
    for (const std::size_t bucket : {std::size_t{0}, std::size_t{25_MiB}, std::size_t{4_MiB}, std::size_t{1_MiB}}) {
      if (lanes > 0 && bucket == 0) continue;  // nothing overlaps
      engine::EngineOptions o = setting.options;
      o.lanes = lanes;
      o.bucket = ByteSize{bucket};
      o.far_bucket = ByteSize{0};  // what is tried is tried as it is
      all.push_back(o);
    }
  return all;
}

double time_candidate(collective::Communicator& comm, nn::Model& model, const TuneSetting& setting, const engine::EngineOptions& options) {
  engine::Engine engine(comm, setting.parameters, options, optim::make(setting.rule), setting.cores, setting.ranks_here);
  const bool wraps = engine.wraps_blocks();
  if (wraps) model.wrap_blocks(engine.block_wrapper());
  const at::Tensor input = model.example(setting.batch, 1);
  std::vector<double> times;
  for (int i = 0; i < kWarmSteps + kTimedSteps; ++i) {
    comm.barrier({.name = "tuning"});
    const auto start = Clock::now();
    engine.begin({.step = 1, .lr = 0});
    at::Tensor out;
    {
      const autocast half(setting.precision);
      out = model.forward(input);
    }
    out.to(at::kFloat).sum().mul(1e-9).backward();
    constexpr double kNoLoss[] = {0};
    engine.finish(kNoLoss, 1);
    if (i >= kWarmSteps) times.push_back(Seconds(Clock::now() - start).count());
  }
  engine.make_whole();
  if (wraps) model.wrap_blocks(nullptr);
  std::nth_element(times.begin(), times.begin() + kTimedSteps / 2, times.end());
  double slowest[] = {times[kTimedSteps / 2]};
  comm.all_reduce(collective::piece(std::span<double>(slowest)), collective::Op::max, {.name = "tuning"});
  return slowest[0];
}

std::string words(const Trial& t) {
  const std::size_t bucket = t.options.bucket;
  return fmt::format("{}, engine.lanes={}: {:.2f} ms", bucket == 0 ? "one bucket" : "buckets of " + format_bytes(bucket), t.options.lanes,
                     t.seconds * 1e3);
}

}  // namespace

TuneResult tune(collective::Communicator& comm, nn::Model& model, const TuneSetting& setting) {
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;  // statistics move in training mode: put back afterwards
  for (const auto& [name, buffer] : model.named_buffers()) buffers.emplace_back(buffer, buffer.clone());
  TuneResult result;
  for (const auto& options : candidates(setting)) result.trials.push_back({options, time_candidate(comm, model, setting, options)});
  for (const auto& [buffer, before] : buffers) buffer.copy_(before);
  for (const auto& p : setting.parameters) p.tensor.mutable_grad().reset();
  const auto best =
      std::min_element(result.trials.begin(), result.trials.end(), [](const Trial& a, const Trial& b) { return a.seconds < b.seconds; });
  result.best = best->options;
  result.why = "chose " + words(*best) + " a step; tried";
  for (const auto& t : result.trials) result.why += (&t == result.trials.data() ? " " : "; ") + words(t);
  return result;
}

}  // namespace cohort::train
