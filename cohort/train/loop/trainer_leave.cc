// A run that ends early because a rank was told to leave: no update is lost.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {

void Trainer::leave(const std::string& why) {
  const std::lock_guard lock(mutex_);
  why_ = why.empty() ? "a call of leave()" : why;
  loop_->leave();  // after why_: who sees the vote asks for it
}

// One that is being written is waited for: the last step is not left out because a disk is slow.
bool Trainer::save_and_wait(CheckpointManager& checkpoints) {
  status_.set_phase("writing the last checkpoint");
  return checkpoints.save_last();
}

std::string Trainer::leaving_text(bool saved) {
  std::string mine;
  {
    const std::lock_guard lock(mutex_);
    mine = why_;
  }
  const auto whys = job::gather_texts(comm_, std::move(mine), "who leaves");
  const auto first = std::ranges::find_if(whys, [](const auto& why) { return !why.empty(); });
  const auto others = whys.end() - first - 1 - std::count(first, whys.end(), "");
  const std::string who = others == 0 ? "" : fmt::format(" and {} other{}", others, others == 1 ? "" : "s");
  return fmt::format("rank {}{} got {}: the run ends after update {} of {}, {}; {} to go on", first - whys.begin(), who, *first,
                     loop_->step(), loop_->total_steps(),
                     saved ? fmt::format("saved in {}/checkpoints", run_folder(config_)) : "which could not be saved",
                     config_.checkpoint.resume == "never" ? "start it again without checkpoint.resume=never" : "start it again");
}

}  // namespace cohort::train
