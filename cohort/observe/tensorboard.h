// Event files that TensorBoard, aim and `wandb sync` read: scalars, histograms, images.
//   auto events = EventWriter(run, Rank{0});
//   events.scalar("train/loss", step, loss);
// TensorBoard follows one file in a folder, the one whose name sorts last: rank 0 writes in <run>/, rank r in <run>/rank<r>/. A restarted
// job opens a new file that sorts behind the older ones and never appends to a torn one; `resumes_at` tells TensorBoard to drop the steps
// that will come again. Records wait in memory for at most flush_every as long as more come, or until flush().
// Threads: any. Failure: the constructor Kind::system; afterwards a full disk loses records, with one warning (append_file.h).
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/deadline.h"
#include "cohort/base/ids.h"
#include "cohort/observe/append_file.h"
#include "cohort/observe/event.h"
#include "cohort/observe/metrics.h"

namespace cohort::observe {

struct EventOptions {
  Seconds flush_every{5};  // TensorBoard looks every 5 s; 0 writes each record at once
  std::optional<std::int64_t> resumes_at{};
  std::function<double()> clock = unix_time;
};

std::string event_folder(const std::string& run, Rank rank);

class EventWriter {
 public:
  EventWriter(const std::string& run, Rank rank, EventOptions options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void scalar(std::string_view tag, std::int64_t step, double value);
  void histogram(std::string_view tag, std::int64_t step, std::span<const float> values);
  void image(std::string_view tag, std::int64_t step, const Image& image);
  void flush();
  void discard();  // what waits in memory is not written

  const std::string& path() const { return file_.path(); }
  std::uint64_t lost() const;  // batches of records that a full disk swallowed

 private:
  void add(double now, const std::string& payload);
  void write(double now);

  EventOptions options_;
  mutable std::mutex mutex_;
  AppendFile file_;   // this and below: guarded by mutex_; the path is constant
  std::string head_;  // what a file starts with, until the disk has taken it
  std::string waiting_;
  double flushed_at_ = 0;
};

}  // namespace cohort::observe
