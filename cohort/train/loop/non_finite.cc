#include "cohort/train/loop/non_finite.h"

#include <fmt/format.h>

#include <cmath>

#include "cohort/train/loop/train_loop.h"

namespace cohort::train {

void NonFiniteSteps::add(const StepResult& result, std::int64_t step) {
  if (!result.known) return;
  const bool finite_loss = std::isfinite(result.loss);
  if (finite_loss && !result.verdict.stuck) return reset();
  if (finite_loss && dynamic_ && result.scale > 1) return;
  if (count_ == 0) since_ = step - result.verdict.sums_of + 1;
  count_ += result.verdict.sums_of;
  last_ = step;
  loss_ = std::isnan(result.loss) ? std::abs(result.loss) : result.loss;  // told as nan, not as -nan
  lr_ = result.lr;
  scale_ = result.scale;
}

std::string NonFiniteSteps::cause(const TrainConfig& config) const {
  if (std::isfinite(loss_) && scale_ > 1)
    return fmt::format("The loss scale {} is too large for these gradients: take loss_scale=torch, which falls by itself, or a smaller one",
                       scale_);
  const char* const half = config.precision == Precision::fp16 ? "; or precision=bf16, which has the range of fp32" : "";
  if (since_ == 1)
    return fmt::format("No update was made before, so look for inf or nan in the data and in the model's first values{}", half);
  return fmt::format(
      "The likely cause is a learning rate that is too high: try a lower one (optimizer), engine.clip_norm=1 or a longer warmup "
      "(optim.schedule){}",
      half);
}

std::string NonFiniteSteps::text(const TrainConfig& config, std::int64_t newest) const {
  std::string resume = "There is no checkpoint: with other settings it starts from the beginning";
  if (newest >= 0)
    resume = fmt::format(
        "The newest checkpoint is of step {}, in {}/checkpoints: start again with other settings{} to go on from it; if that diverges at "
        "once, it was made too late: remove it, or begin anew with checkpoint.resume=never",
        newest, run_folder(config), config.checkpoint.resume == "never" ? ", without checkpoint.resume=never," : "");
  return fmt::format(
      "training has diverged: {} steps in a row (max_skipped_steps), {} to {}, had a loss or gradients that are not finite; the last loss "
      "is {}, the learning rate {}. {}. {}",
      count_, since_, last_, loss_, lr_, cause(config), resume);
}

}  // namespace cohort::train
