#include "cohort/train/loop/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/log.h"

namespace cohort {

Trainer::Trainer(Job& job, TrainConfig config)
    : Trainer(
          job.comm(),
          [&] {
            if (config.threads == 0) config.threads = job.suggested_threads();
            return std::move(config);
          }(),
          std::max(1, static_cast<int>(std::thread::hardware_concurrency())), job.local_size()) {}

Trainer::Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here) : comm_(comm), config_(std::move(config)) {
  check(config_);
  if (config_.threads > 0) at::set_num_threads(config_.threads);
  config_text_ = Config(config_).yaml();
  if (comm_.rank().value == 0) {
    std::filesystem::create_directories(run_folder(config_));
    write_file_atomically(run_folder(config_) + "/config.yaml", config_text_);
  }
  comm_.barrier({.name = "the run's folder is there"});
  learner_ = std::make_unique<Learner>(comm_, config_, cores, ranks_here);
}

RunSummary Trainer::run() {
  Keeper keeper(comm_, *learner_, config_, config_text_);
  const auto resumed = keeper.restore();
  Chronicle chronicle(comm_, config_, config_text_, *learner_);
  chronicle.say(fmt::format("{}: {} parameters ({}), {} ranks x {} samples, {} updates", config_.model, learner_->model().parameter_count(),
                            learner_->groups(), comm_.size(), config_.data.batch * config_.data.accumulate, learner_->total_steps()));
  chronicle.say(learner_->tuning().empty() ? learner_->engine().lanes().why : learner_->tuning());
  if (resumed) chronicle.say(fmt::format("goes on after update {}", *resumed));
  if (learner_->step() == 0) chronicle.show_images(learner_->some_inputs(config_.observe.images));
  Evaluation test;
  while (!learner_->done()) train_epoch(chronicle, keeper, test);
  if (test.samples == 0) test = learner_->evaluate();
  keeper.finish();
  keeper.save();
  keeper.finish();
  return chronicle.finish(test, learner_->step());
}

void Trainer::train_epoch(Chronicle& chronicle, Keeper& keeper, Evaluation& test) {
  const auto epoch = learner_->position().epoch;
  const auto steps = learner_->steps_per_epoch();
  const auto epochs = (learner_->total_steps() + steps - 1) / steps;
  chronicle.epoch_starts(epoch, epochs, learner_->position().step, std::min(steps, learner_->total_steps() - epoch * steps));
  while (!learner_->done() && learner_->position().epoch == epoch) {
    const StepResult result = learner_->train_step();
    const bool ended = learner_->position().epoch != epoch;
    chronicle.step_done(result, learner_->step(), ended ? steps : learner_->position().step);
    keeper.save_if_due(ended);
  }
  test = learner_->evaluate();
  chronicle.evaluated(test, learner_->step(), epoch + 1);
  chronicle.show_values(learner_->model(), learner_->step());
}

}  // namespace cohort
