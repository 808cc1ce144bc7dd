#include "cohort/train/loop/folder_watch.h"

#include <fmt/format.h>

#include <utility>

#include "cohort/base/log.h"
#include "cohort/base/text.h"

namespace cohort::train {

FolderWatch::FolderWatch(std::string folder, FolderWatchOptions options)
    : folder_(std::move(folder)), options_(std::move(options)), thread_([this] { watch(); }) {}

FolderWatch::~FolderWatch() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Wakes nobody: the thread looks again after a limit at the latest, so that a look costs two locks.
void FolderWatch::begin() {
  const std::lock_guard lock(mutex_);
  since_ = Clock::now();
}

void FolderWatch::end() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_, false)) log_warning("{} answers again, after {}", folder_, format_seconds(Clock::now() - *since_));
  since_.reset();
}

void FolderWatch::answered() {
  const std::lock_guard lock(mutex_);
  if (!since_) return;
  if (std::exchange(told_, false)) log_warning("{} answers again, after {}", folder_, format_seconds(Clock::now() - *since_));
  since_ = Clock::now();
}

void FolderWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.limit / 2, [&] { return stops_; })) {
    if (told_ || !since_ || Clock::now() - *since_ < options_.limit) continue;
    told_ = true;
    const auto text = fmt::format(
        "{} has not answered for {}: a file server that hangs? Rank 0 waits for it and the other ranks for rank 0, until it answers or "
        "they give up (COHORT_TIMEOUT)",
        folder_, format_seconds(options_.limit));
    options_.tell ? options_.tell(text) : log_error("{}", text);
  }
}

}  // namespace cohort::train
