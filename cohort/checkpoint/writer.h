// Saves snapshots on a thread of its own, one at a time, while training goes on.
// A failed save is an Outcome, never an exception in the training loop: a full disk costs a checkpoint, not the run. Whoever takes it
// tells of it; failures that nobody took are logged by the destructor. When a snapshot comes while the one before is still being written,
// submit waits up to `patience` and then skips it, and the log says so: a slow disk makes checkpoints rarer, not steps longer. Ask busy()
// before copying tensors for nothing.
// Owner: one per run and saving rank. Threads: any; the thread `checkpoint` runs the saves. Failure: wait() past its deadline is
// Kind::timeout. The destructor waits up to `drain`, then leaves a thread that hangs in the disk behind and says so.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "cohort/base/deadline.h"
#include "cohort/checkpoint/snapshot.h"
#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

struct WriterOptions {
  Seconds patience{0};  // how long submit() may wait for the save before
  Seconds drain{60};    // how long the destructor may wait for the last one
  int nice = 10;        // the thread gives way to those that compute
};

struct Outcome {
  std::int64_t step = 0;
  std::optional<Error> error;  // empty: saved
  std::optional<Saved> saved;
  Seconds took{0};
};

class Writer {
 public:
  using Save = std::function<Saved(const Manifest&, std::span<const TensorFile>)>;
  explicit Writer(Store store, WriterOptions options = {});
  explicit Writer(Save save, WriterOptions options = {});  // must be callable from another thread as long as a save runs
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Touches memory for snapshots of this size in the background, before the first: fresh pages cost a training loop far more than
  // the copy does.
  void prepare(std::size_t bytes);
  Snapshot begin();                // empty; takes over the memory of a snapshot that is on disk
  bool submit(Snapshot snapshot);  // false: skipped, its memory is kept for the next
  bool busy() const;
  int skipped() const;                             // in a row; two and more are logged as errors
  std::optional<Outcome> poll();                   // the oldest not yet taken
  std::optional<Outcome> wait(Deadline deadline);  // the same, waiting for the save in flight; empty when there is nothing to wait for

 private:
  struct Shared;  // outlives the Writer when its thread does
  static void run(const std::shared_ptr<Shared>& shared, int nice);

  const WriterOptions options_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace cohort::checkpoint
