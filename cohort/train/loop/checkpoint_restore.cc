// The side of a CheckpointManager that finds what a run resumes from, and takes it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/finite.h"
#include "cohort/data/class_names.h"
#include "cohort/data/form_json.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/checkpoint_manager.h"

namespace cohort::train {
namespace {

// A folder of classes that came, went or was renamed since the checkpoint would give the labels it was trained on another meaning.
void check_classes(const checkpoint::Checkpoint& found, const data::Form& form, const TrainConfig& config) {
  const auto at = found.manifest.values.find("data");
  if (at == found.manifest.values.end()) return;
  const auto names = data::form_of_json(at->second, found.path).names;
  const std::string now = fmt::format("data.train '{}'", config.data.train);
  const data::ClassNames saved_names{names, found.path}, names_now{form.names, now};
  std::string difference = data::difference_of_classes(saved_names, names_now);
  if (difference.empty()) difference = data::difference_of_classes(names_now, saved_names);
  if (!difference.empty())
    throw_failure(Kind::usage,
                  "{}: the run cannot resume with other classes; restore them, or say checkpoint.resume=never or another `out`",
                  difference);
}

}  // namespace

// Where a run goes on. Broadcast as it is.
struct CheckpointManager::ResumePoint {
  std::int64_t step = -1, epoch = 0, samples = 0;  // of the epoch
  std::int64_t state = 0;                          // StateToRead
  std::int64_t optimizer_start = 0;
};

checkpoint::Newest CheckpointManager::newest_usable(const std::function<void(const checkpoint::Checkpoint&)>& accept) const {
  std::set<std::string> parameters;
  for (const auto& [name, t] : loop_.model().named_parameters()) parameters.insert(name);
  return store_->newest([&](const checkpoint::Checkpoint& whole) {
    if (const auto name = checkpoint::first_not_finite(checkpoint::Contents(whole), kModelGroup, parameters))
      throw_failure(Kind::corrupt, "parameter '{}' has values that are inf or nan: training had diverged when it was made", *name);
    if (accept) accept(whole);
  });
}

// To begin again without a word would throw away what was learned, and the newer checkpoints would replace the damaged ones.
void CheckpointManager::refuse_none(const std::vector<checkpoint::Refusal>& refused) const {
  std::vector<std::string> reasons;
  for (const auto& one : refused)
    reasons.push_back(fmt::format("{}: {}", std::filesystem::path(one.path).filename().string(), one.error.what));
  throw_failure(Kind::usage,
                "none of the checkpoints in {} can be used ({}): {}; restore one of them, or begin anew with "
                "--set checkpoint.resume=never, which keeps them as {}.old, or with another `out`",
                folder_, refused.size(), fmt::join(reasons, "; "), folder_);
}

// The next worker would meet the same disk: one of a job that trains begins, and saves nothing before its fence is raised.
bool CheckpointManager::raise_due_fence() {
  if (!fence_due_) return true;
  try {
    checkpoint::raise_fence(open_folder(), fence_);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::system || fence_.epoch <= 1) throw;
    log_warning("{}; training goes on, and nothing is saved before that can be written", failure.what());
    return false;
  }
  fence_due_ = false;
  return true;
}

void CheckpointManager::find_newest(ResumePoint& at) {
  fence_due_ = !fence_.job.empty();
  raise_due_fence();
  if (fence_.epoch > 1 && !Folder::if_there(folder_, kOwnParts)) return;  // nor can it be made now
  const auto newest = newest_usable();
  if (!newest.checkpoint && !newest.refused.empty()) refuse_none(newest.refused);
  for (const auto& refused : newest.refused)
    log_error("checkpoint {} is damaged and was passed over: {}", refused.path, refused.error.what);
  if (!newest.checkpoint) {
    if (config_.checkpoint.resume == "must")
      throw_failure(Kind::usage,
                    "checkpoint.resume is must, and there is no checkpoint in {}; look at `out` and `name`, or say "
                    "checkpoint.resume=auto to begin without one",
                    folder_);
    return;
  }
  found_ = *newest.checkpoint;
  check_classes(found_, loop_.form(), config_);
  const ResumePlan plan = plan_resume(found_, {config_, config_text_, data::to_text(loop_.data_fingerprint())});
  changes_ = plan.changes;
  const auto& m = found_.manifest;
  at = {m.step, m.epoch, plan.restart_epoch ? 0 : m.position, static_cast<std::int64_t>(plan.state), 0};
  if (const auto start = m.texts.find(kOptimizerStartText); start != m.texts.end()) at.optimizer_start = parse_int(start->second);
  if (const auto steps = m.texts.find(kNotFiniteText); steps != m.texts.end())
    log_warning("the {} steps before this checkpoint had a loss or gradients that were not finite; its parameters are those before them",
                steps->second);
  if (m.world_size != comm_.size())
    log_warning("the checkpoint is of {} ranks, this run has {}: its batches are others than they would have been", m.world_size,
                comm_.size());
  if (const auto scale = m.texts.find("loss_scale"), state = m.texts.find("loss_scale_state"); state != m.texts.end())
    loop_.scale().restore(optim::scale_state_of(state->second), scale == m.texts.end() ? "" : scale->second);
  if (plan.state == StateToRead::none) at.optimizer_start = m.step - loop_.left_out();
  if (at.samples > 0 && at.samples >= loop_.share().samples)
    throw_failure(Kind::usage,
                  "{}: {} samples of its epoch are gone, and the training set has {}; checkpoint.allow=restart_epoch begins it again",
                  found_.path, at.samples, loop_.share().samples);
  if (loop_.scale().skipped() > m.step || at.optimizer_start < 0 || at.optimizer_start > m.step)  // updates of the rule are what is left
    throw_failure(Kind::corrupt, "{}: of {} steps {} were called off, and the optimizer began after {}: that cannot be", found_.path,
                  m.step, loop_.scale().skipped(), at.optimizer_start);
}

std::string CheckpointManager::changes() const {
  if (changes_.empty()) return "";
  return fmt::format("changed since this checkpoint was made:\n  {}", fmt::join(changes_, "\n  "));
}

std::optional<std::int64_t> CheckpointManager::restore() {
  if (config_.checkpoint.resume == "never") return std::nullopt;
  ResumePoint at;
  job::run_on_all(comm_, "checkpoint to resume from", [&] {
    if (store_) find_newest(at);
  });
  comm_.broadcast({&at, sizeof at / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "position to resume at"});
  if (at.step < 0) return std::nullopt;
  optim::ScaleState scale = loop_.scale().state();
  comm_.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  loop_.scale().restore(scale, loop_.scale().spec());
  if (sharded_)
    job::run_on_all(comm_, "manifest of the checkpoint", [&] {
      const auto path = folder_ + "/" + checkpoint::step_name(at.step);
      if (!store_) found_ = {path, checkpoint::read_manifest(Folder(path, kOwnParts + 1), at.step)};
    });
  read_state(found_, comm_, loop_, sharded_parameters_, static_cast<StateToRead>(at.state));
  loop_.start_at(at.epoch, at.samples, at.step);
  loop_.set_optimizer_start(at.optimizer_start);
  last_saved_ = saved_step_ = at.step;
  return at.step;
}

// A step's loss is taken before its update: that parameters have not diverged is known of a checkpoint when the step after it was finite.
std::int64_t CheckpointManager::set_diverged_aside(std::int64_t since) {
  std::int64_t diverged = since - 1;
  std::vector<std::int64_t> aside;
  const auto sound = newest_usable([&](const checkpoint::Checkpoint& whole) {
                       const auto& m = whole.manifest;
                       if (m.step < diverged) return;
                       const auto before = m.texts.find(kNotFiniteText);  // steps that changed nothing
                       if (before != m.texts.end()) diverged = std::min(diverged, m.step - parse_int(before->second));
                       aside.push_back(m.step);
                       throw_failure(Kind::corrupt, "no step after it was finite");
                     }).checkpoint;
  if (!sound) {
    const auto newest = newest_usable().checkpoint;
    return newest ? newest->manifest.step : -1;
  }
  if (!may_write()) return sound->manifest.step;
  for (const std::int64_t step : aside) try {
      const std::string path = store_->set_aside(step, "diverged");
      log_warning("no step after the checkpoint of step {} was finite: it is called {} now, and the run does not resume from it", step,
                  path);
    } catch (const Failure& failure) {
      log_error("no step after the checkpoint of step {} was finite; remove it before the run is resumed: {}", step, failure.what());
    }
  return sound->manifest.step;
}

std::int64_t CheckpointManager::newest_before(std::int64_t since, const std::atomic<bool>* aborted) {
  finish(aborted);
  std::int64_t newest = -1;
  job::run_on_all(comm_, "newest checkpoint", [&] {
    if (store_) newest = set_diverged_aside(since);
  });
  comm_.broadcast(collective::piece(std::span(&newest, 1)), Rank{0}, {.name = "newest checkpoint"});
  return newest;
}

}  // namespace cohort::train
