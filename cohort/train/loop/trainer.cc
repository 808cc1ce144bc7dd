#include "cohort/train/loop/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/replicas.h"
#include "cohort/train/loop/same_data.h"
#include "cohort/train/loop/same_settings.h"

namespace cohort::train {
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

namespace {

int cores_here() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

TrainConfig with_threads(TrainConfig config, const Job& job) {
  if (config.threads == 0) config.threads = job.suggested_threads();
  return config;
}

}  // namespace

Trainer::Trainer(Job& job, TrainConfig config, RankStatus* status)
    : Trainer(job.comm(), with_threads(std::move(config), job), cores_here(), job.local_size(), std::nullopt, status) {}

Trainer::Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, RankStatus* status)
    : Trainer(comm, std::move(config), cores, ranks_here, std::nullopt, status) {}

Trainer::Trainer(Job& job, TrainConfig config, ModelAndData own, RankStatus* status)
    : Trainer(job.comm(), with_threads(std::move(config), job), cores_here(), job.local_size(), std::optional(std::move(own)), status) {}

Trainer::Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, ModelAndData own, RankStatus* status)
    : Trainer(comm, std::move(config), cores, ranks_here, std::optional(std::move(own)), status) {}

Trainer::Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, std::optional<ModelAndData> own,
                 RankStatus* status)
    : status_(status != nullptr ? *status : own_status_),
      comm_(comm),
      observed_(comm, status_),
      config_(own ? settings_for(std::move(config), *own) : std::move(config)) {
  check(config_);
  if (config_.threads > 0) at::set_num_threads(config_.threads);
  config_text_ = bare_yaml(config_);
  check_same_settings(comm_, shared_yaml(config_));
  status_.set_phase("opening model and data");
  if (own) {
    job::run_on_all(comm_, "model and data", [&] {
      prepare(*own, config_);
      data::steps_of(share_of(config_, own->train->size(), comm_.size(), comm_.rank().value));
    });
    check_same_model(comm_, *own);
    check_same_data(comm_, *own, config_);
  }
  loop_ = own ? std::make_unique<TrainLoop>(comm_, config_, cores, ranks_here, status_, *std::move(own))
              : std::make_unique<TrainLoop>(comm_, config_, cores, ranks_here, status_);
  job::run_on_all(comm_, "folder of the run", [&] {  // only now: settings that are refused leave nothing behind
    if (comm_.rank().value != 0) return;
    make_folder(run_folder(config_));
  });
}

RunSummary Trainer::run() {
  status_.set_phase("looking for a checkpoint");
  CheckpointManager checkpoints(comm_, *loop_, config_, config_text_);
  const auto resumed = checkpoints.restore();
  // Only now: a checkpoint may refuse them, and those it was made with stay. When a run goes on the RunLogger writes them: it only warns.
  job::run_on_all(comm_, "settings of the run", [&] {
    if (comm_.rank().value == 0 && !resumed) write_file_atomically(run_folder(config_) + "/config.yaml", config_text_);
  });
  RunLogger logger(comm_, config_, config_text_, *loop_, [&] { return checkpoints.may_write(); });
  const auto mesh = splits_model(config_) ? fmt::format("mesh {}: ", loop_->mesh().text()) : "";
  logger.say(fmt::format("{}: {} parameters ({}), {}{} ranks x {} samples, {} updates", loop_->model_spec(), loop_->parameter_count(),
                         loop_->groups(), mesh, loop_->mesh().size("dp"), config_.data.batch * config_.data.accumulate,
                         loop_->total_steps()));
  if (!loop_->from_data().empty()) logger.say(fmt::format("model: {} as in data.train", loop_->from_data()));
  if (!loop_->pretrained().empty()) logger.say("first values: " + loop_->pretrained());
  const engine::LaneChoice& lanes = loop_->engine().lanes();
  const auto when = fmt::format("gradients are reduced {} backward (engine.lanes): {}", lanes.lanes > 0 ? "beside" : "after", lanes.why);
  logger.say(loop_->tuning().empty() ? when : loop_->tuning());
  if (config_.precision != Precision::fp32 || loop_->scale().scales())
    logger.say(fmt::format("computes in {}, loss scale {}", name_of(config_.precision), loop_->scale().spec()));
  if (!loop_->recomputing().empty()) logger.say(loop_->recomputing());
  if (config_.check_replicas > 0 && comm_.size() > 1 && !loop_->has_replicas()) logger.say(kNothingToCompare);
  if (resumed) logger.resumed(*resumed, *loop_);
  if (const std::string changes = checkpoints.changes(); !changes.empty()) logger.say(changes);
  if (loop_->step() == 0) logger.show_images(loop_->first_inputs(config_.observe.images));
  Evaluation test;
  std::optional<StepProfiler> profiler;
  if (config_.observe.plan) loop_->profile_with(&profiler.emplace());
  try {
    while (!loop_->done() && !leaves_) train_epoch(logger, checkpoints, test);
  } catch (const Failure& failure) {
    status_.set_phase("saving for the lost rank");
    const auto saved = checkpoints.save_emergency(failure.error());
    if (!saved) throw;
    throw Failure{{failure.kind(),
                   fmt::format("{}; nothing is lost: {} has all that was learned, start the run again", failure.what(), saved->path),
                   failure.error().rank}};
  }
  loop_->profile_with(nullptr);
  if (profiler && !leaves_) logger.compare_with_plan(*profiler);
  if (test.samples == 0 && !leaves_) test = loop_->evaluate();
  checkpoints.refuse_if_taken_over(&comm_);
  const bool saved = save_and_wait(checkpoints);
  checkpoints.refuse_if_taken_over(&comm_);
  status_.set_phase("writing the report");
  RunSummary summary = logger.finish(test, *loop_);
  summary.saved = saved;
  if (!saved) summary.lost = job::gather_texts(comm_, checkpoints.lost_text(), "what is lost").front();  // rank 0's
  summary.left = leaves_;
  loop_->engine().adopt_consensus();
  return summary;
}

void Trainer::train_epoch(RunLogger& logger, CheckpointManager& checkpoints, Evaluation& test) {
  const auto epoch = loop_->position().epoch;
  const auto steps = loop_->steps_of_epoch(epoch), done = loop_->position().step;
  const auto left = loop_->total_steps() - loop_->step(), later = std::max<std::int64_t>(0, left - (steps - done));
  const auto each = loop_->steps_per_epoch();
  logger.epoch_starts(epoch, epoch + 1 + (later + each - 1) / each, done, std::min(steps, done + left));
  while (!loop_->done() && loop_->position().epoch == epoch) {
    if (checkpoints.taken_over()) loop_->leave();  // no rank's step may be left half done
    const StepResult result = loop_->train_step();
    if (result.leaves) checkpoints.refuse_if_taken_over(&comm_);
    if (after_step_) {
      loop_->engine().await_parameters();  // it may read them
      after_step_(*loop_);
    }
    loop_->compare_replicas_if_due();
    const bool ended = loop_->position().epoch != epoch;
    logger.step_done(result, loop_->step(), ended ? steps : loop_->position().step);
    if (loop_->non_finite().too_many()) loop_->stop_for_non_finite_steps(checkpoints.newest_before(loop_->non_finite().since()));
    leaves_ = result.leaves && !loop_->done();
    if (leaves_) break;
    if (!ended) checkpoints.save_if_due(false);
  }
  logger.epoch_ends(loop_->step());
  if (leaves_) {  // at once: there may be little time
    save_and_wait(checkpoints);
    logger.say(leaving_text(checkpoints.saved()));
    return;  // nor is an epoch evaluated that ends here: there may be no time
  }
  test = loop_->evaluate();
  logger.evaluated(test, loop_->step(), epoch + 1);
  logger.show_values(*loop_, loop_->step());
  if (loop_->position().epoch != epoch)
    checkpoints.save_if_due(true);  // after it: a checkpoint of an epoch's end comes with its evaluation
}

}  // namespace cohort::train
