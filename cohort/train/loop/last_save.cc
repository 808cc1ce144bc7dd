// The last checkpoint of a run: without it the updates since the one before are lost, so it is tried again for a while.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/staging_directory.h"
#include "cohort/train/loop/checkpoint_manager.h"

namespace cohort::train {
namespace {

constexpr Seconds kFirstPause{0.5}, kLongestPause{5};  // between two tries; doubles
constexpr Seconds kAbortPoll{0.1};                     // while it waits

}  // namespace

bool CheckpointManager::save_last(const std::atomic<bool>* aborted) {
  const Deadline give_up = Deadline::in(config_.checkpoint.last_try);
  for (Seconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    finish(aborted);
    ending_ = true;
    write_failed_ = false;
    save();
    finish(aborted);
    std::int32_t whole = saved() ? 1 : 0;
    comm_.all_reduce(collective::piece(std::span(&whole, 1)), collective::Op::min, {.name = "is the last checkpoint whole"});
    if (whole != 0) return true;
    // Rank 0 decides: its clock, its disk. A model that is not finite would not be written the next time either.
    std::int32_t again = write_failed_ && !fenced_off_ && !taken_over() && !give_up.passed() ? 1 : 0;
    comm_.broadcast(collective::piece(std::span(&again, 1)), Rank{0}, {.name = "is the last checkpoint tried again"});
    if (again == 0) return false;
    if (store_ && pause == kFirstPause)
      log_warning("the last checkpoint is tried again, for {} at most (checkpoint.last_try)", format_seconds(config_.checkpoint.last_try));
    const Deadline next = Deadline::in(pause).sooner(give_up);
    while (!next.passed()) {
      if (aborted != nullptr && *aborted)
        throw_failure(Kind::aborted, "a rank was lost while the last checkpoint, of step {}, was to be tried again", loop_.step());
      std::this_thread::sleep_for(std::min<Seconds>(kAbortPoll, Seconds{std::max(0, next.left_ms()) / 1e3}));
    }
  }
}

// None where the folder is gone.
std::vector<checkpoint::Listed> CheckpointManager::listed_checkpoints() const {
  try {
    return store_->list();
  } catch (const Failure& failure) {
    log_debug("{}", failure.what());
    return {};
  }
}

// Names only: it may be the disk that fails.
std::string CheckpointManager::lost_text() const {
  if (!store_) return "rank 0 says what is kept";
  const auto step = loop_.step();
  for (const checkpoint::Listed& listed : listed_checkpoints()) try {
      checkpoint::read_manifest(listed.path, listed.step);
      return fmt::format("updates {} to {} are lost; {} is kept, and the run goes on from it when it is started again", listed.step + 1,
                         step, listed.path);
    } catch (const Failure&) {  // a damaged one
    }
  if (saved_step_ > 0)
    return fmt::format("updates {} to {} are lost; the checkpoint of step {} was whole when it was written, and cannot be read now",
                       saved_step_ + 1, step, saved_step_);
  return fmt::format("updates 1 to {} are lost: there is no checkpoint in {}", step, folder_);
}

}  // namespace cohort::train
