// Tells when the run's folder does not answer: a file server that hangs stops the training thread of rank 0 in the kernel, the other ranks
// then wait for rank 0, and nothing but another thread can say why.
//   const auto look = watch.look();  // while it lives the folder is waited for
// Owner: CheckpointManager, on rank 0. Threads: one; its own tells. Failure: none.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cohort/base/deadline.h"

namespace cohort::train {

struct FolderWatchOptions {
  Seconds limit{10};                               // of one look, before it is told
  std::function<void(const std::string&)> tell{};  // empty: the log
};

class FolderWatch {
 public:
  explicit FolderWatch(std::string folder, FolderWatchOptions options = {});
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  class Look {
   public:
    explicit Look(FolderWatch& watch) : watch_(watch) { watch_.begin(); }
    ~Look() { watch_.end(); }
    Look(const Look&) = delete;
    Look& operator=(const Look&) = delete;

   private:
    FolderWatch& watch_;
  };
  [[nodiscard]] Look look() { return Look(*this); }
  void answered();  // the look under way waits for something else than the folder, and it has just answered: its time begins anew

 private:
  void begin();
  void end();
  void watch();

  const std::string folder_;
  const FolderWatchOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::optional<Clock::time_point> since_;  // of the look under way
  bool told_ = false;                       // about that one
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace cohort::train
