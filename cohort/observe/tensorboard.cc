#include "cohort/observe/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "cohort/base/bytes.h"
#include "cohort/base/folder.h"

namespace cohort::observe {
namespace {

constexpr std::size_t kMostWaiting = 1_MiB;  // images fill this before the clock does
constexpr std::string_view kPrefix = "events.out.tfevents.";

// The second in the name of the newest event file in the folder, or 0.
std::int64_t newest_second(const Folder& folder) {
  std::int64_t newest = 0;
  for (const std::string& name : folder.names()) {
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t second = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), second);
    newest = std::max(newest, second);
  }
  return newest;
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

AppendFile open_file(const std::string& folder, double now) {
  static std::atomic<int> files{0};
  const std::filesystem::path path(folder);
  const std::string above = path.has_parent_path() ? path.parent_path().string() : ".";
  make_folders(above);
  const Folder held = Folder(above).make(path.filename().string());
  const auto second = std::max(static_cast<std::int64_t>(now), newest_second(held) + 1);  // two starts in one second still sort
  return AppendFile::fresh({held, fmt::format("{}{:010}.{}.{}.{}", kPrefix, second, host_name(), getpid(), files++)});
}

}  // namespace

std::string event_folder(const std::string& run, Rank rank) { return rank.value > 0 ? fmt::format("{}/rank{}", run, rank.value) : run; }

EventWriter::EventWriter(const std::string& run, Rank rank, EventOptions options)
    : options_(std::move(options)), file_(open_file(event_folder(run, rank), options_.clock())), flushed_at_(options_.clock()) {
  const double now = options_.clock();
  head_ = record_of(file_version_event(now));
  if (options_.resumes_at) head_ += record_of(session_start_event({now, *options_.resumes_at}));
  write(now);
}

EventWriter::~EventWriter() { flush(); }

void EventWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  const double now = options_.clock();
  add(now, scalar_event({now, step}, tag, value));
}

void EventWriter::histogram(std::string_view tag, std::int64_t step, std::span<const float> values) {
  const double now = options_.clock();
  add(now, histogram_event({now, step}, tag, histogram_of(values)));
}

void EventWriter::image(std::string_view tag, std::int64_t step, const Image& image) {
  const double now = options_.clock();
  add(now, image_event({now, step}, tag, image));
}

void EventWriter::add(double now, const std::string& payload) {
  const auto record = record_of(payload);
  const std::lock_guard lock(mutex_);
  waiting_ += record;
  // A wall clock that was set back counts as time passed: better one write too many than none for an hour.
  if (waiting_.size() < kMostWaiting && std::abs(now - flushed_at_) < options_.flush_every.count()) return;
  write(now);
}

void EventWriter::write(double now) {
  if (file_.append(head_ + std::exchange(waiting_, {}))) head_.clear();
  flushed_at_ = now;
}

void EventWriter::flush() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) write(options_.clock());
}

void EventWriter::discard() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
}

std::uint64_t EventWriter::lost() const {
  const std::lock_guard lock(mutex_);
  return file_.lost();
}

}  // namespace cohort::observe
