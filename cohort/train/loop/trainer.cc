#include "cohort/train/loop/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/train/loop/replicas.h"
#include "cohort/train/loop/same_settings.h"
#include "cohort/train/loop/together.h"

namespace cohort {
namespace {

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_failure(Kind::usage, "cannot make the run's folder {}: {}; say another `out`", path, error.message());
}

}  // namespace

std::string bare_yaml(TrainConfig& config) {
  constexpr std::string_view kRemark = "  # default";
  std::string text;
  const std::string full = Config(config).yaml();
  for (const auto line : split(full, '\n')) {
    if (line.empty()) continue;
    text.append(line.ends_with(kRemark) ? line.substr(0, line.size() - kRemark.size()) : line).append("\n");
  }
  return text;
}

std::string shared_yaml(TrainConfig config) {
  config.threads = 0;
  return bare_yaml(config);
}

Trainer::Trainer(Job& job, TrainConfig config, Whereabouts* where)
    : Trainer(
          job.comm(),
          [&] {
            if (config.threads == 0) config.threads = job.suggested_threads();
            return std::move(config);
          }(),
          std::max(1, static_cast<int>(std::thread::hardware_concurrency())), job.local_size(), where) {}

Trainer::Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, Whereabouts* where)
    : where_(where != nullptr ? *where : own_where_), watched_(watched(comm, where_)), comm_(*watched_), config_(std::move(config)) {
  check(config_);
  if (config_.threads > 0) at::set_num_threads(config_.threads);
  config_text_ = bare_yaml(config_);
  check_same_settings(comm_, shared_yaml(config_));
  where_.doing("opening model and data");
  learner_ = std::make_unique<Learner>(comm_, config_, cores, ranks_here, where_);
  together(comm_, "folder of the run", [&] {  // only now: settings that cannot be leave nothing behind
    if (comm_.rank().value != 0) return;
    make_folder(run_folder(config_));
  });
}

RunSummary Trainer::run() {
  where_.doing("looking for a checkpoint");
  Keeper keeper(comm_, *learner_, config_, config_text_);
  const auto resumed = keeper.restore();
  together(comm_, "settings of the run", [&] {  // not before: a checkpoint may refuse them, and those it was made with stay
    if (comm_.rank().value == 0) write_file_atomically(run_folder(config_) + "/config.yaml", config_text_);
  });
  Chronicle chronicle(comm_, config_, config_text_, *learner_);
  chronicle.say(fmt::format("{}: {} parameters ({}), {} ranks x {} samples, {} updates", config_.model, learner_->model().parameter_count(),
                            learner_->groups(), comm_.size(), config_.data.batch * config_.data.accumulate, learner_->total_steps()));
  chronicle.say(learner_->tuning().empty() ? learner_->engine().lanes().why : learner_->tuning());
  if (config_.precision != Precision::fp32 || learner_->scale().scales())
    chronicle.say(fmt::format("computes in {}, loss scale {}", name_of(config_.precision), learner_->scale().spec()));
  if (!learner_->recomputing().empty()) chronicle.say(learner_->recomputing());
  if (config_.check_replicas > 0 && comm_.size() > 1 && !learner_->has_replicas()) chronicle.say(kNothingToCompare);
  if (resumed) chronicle.say(fmt::format("goes on after update {}", *resumed));
  if (learner_->step() == 0) chronicle.show_images(learner_->some_inputs(config_.observe.images));
  Evaluation test;
  std::optional<Yardstick> yardstick;
  if (config_.observe.plan) learner_->measure_with(&yardstick.emplace());
  try {
    while (!learner_->done() && !leaves_) train_epoch(chronicle, keeper, test);
  } catch (const Failure& failure) {
    where_.doing("saving what the lost rank had");
    const auto rescued = keeper.rescue(failure.error());
    if (!rescued) throw;
    throw Failure{{failure.kind(),
                   fmt::format("{}; nothing is lost: {} has all that was learned, start the run again", failure.what(), rescued->path),
                   failure.error().rank}};
  }
  learner_->measure_with(nullptr);
  if (yardstick && !leaves_) chronicle.hold_against_plan(*yardstick);
  if (test.samples == 0 && !leaves_) test = learner_->evaluate();
  save_and_wait(keeper);
  where_.doing("writing the report");
  RunSummary summary = chronicle.finish(test, *learner_);
  summary.saved = keeper.saved();
  summary.left = leaves_;
  return summary;
}

void Trainer::train_epoch(Chronicle& chronicle, Keeper& keeper, Evaluation& test) {
  const auto epoch = learner_->position().epoch;
  const auto steps = learner_->steps_of_epoch(epoch), done = learner_->position().step;
  const auto left = learner_->total_steps() - learner_->step(), later = std::max<std::int64_t>(0, left - (steps - done));
  const auto each = learner_->steps_per_epoch();
  chronicle.epoch_starts(epoch, epoch + 1 + (later + each - 1) / each, done, std::min(steps, done + left));
  while (!learner_->done() && learner_->position().epoch == epoch) {
    const StepResult result = learner_->train_step();
    if (after_step_) after_step_(*learner_);
    learner_->compare_replicas_if_due();
    const bool ended = learner_->position().epoch != epoch;
    chronicle.step_done(result, learner_->step(), ended ? steps : learner_->position().step);
    leaves_ = result.leaves && !learner_->done();
    if (leaves_) break;
    if (!ended) keeper.save_if_due(false);
  }
  chronicle.epoch_ends(learner_->step());
  if (leaves_) {  // at once: there may be little time
    save_and_wait(keeper);
    chronicle.say(leaving_text(keeper.saved()));
    return;  // nor is an epoch evaluated that ends here: who was told to go goes
  }
  test = learner_->evaluate();
  chronicle.evaluated(test, learner_->step(), epoch + 1);
  chronicle.show_values(*learner_, learner_->step());
  if (learner_->position().epoch != epoch) keeper.save_if_due(true);  // after it: a checkpoint of an epoch's end comes with its evaluation
}

}  // namespace cohort
