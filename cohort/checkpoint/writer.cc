#include "cohort/checkpoint/writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/base/trace.h"

namespace cohort::checkpoint {
namespace {

constexpr std::size_t kMostPooled = 2;     // one being filled, one being written
constexpr std::size_t kMostOutcomes = 64;  // a caller that never polls loses the oldest, not memory

// condition_variable::wait_until overflows on a Deadline that never comes.
template <class Done>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Deadline deadline, Done done) {
  if (!deadline.never()) return changed.wait_until(lock, deadline.at(), done);
  changed.wait(lock, done);
  return true;
}

}  // namespace

struct Writer::Shared {
  explicit Shared(Save s) : save(std::move(s)) {}
  const Save save;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex:
  std::optional<Snapshot> next;  // handed over, not yet taken by the thread
  bool saving = false;
  std::int64_t step = 0;    // of the snapshot in flight
  std::size_t prepare = 0;  // bytes of memory to warm
  bool leaving = false;
  int skipped = 0;
  std::deque<Outcome> outcomes;
  std::vector<Snapshot> pool;

  bool busy() const { return next.has_value() || saving; }
  void keep(Snapshot snapshot) {
    snapshot.clear();
    if (pool.size() < kMostPooled) pool.push_back(std::move(snapshot));
  }
  std::optional<Outcome> take() {
    if (outcomes.empty()) return std::nullopt;
    auto outcome = std::move(outcomes.front());
    outcomes.pop_front();
    return outcome;
  }
};

namespace {

Outcome save_one(const Writer::Save& save, const Snapshot& snapshot) {
  const auto start = Clock::now();
  Outcome outcome{snapshot.manifest.step, std::nullopt, std::nullopt, Seconds{0}};
  try {
    outcome.saved = save(snapshot.manifest, snapshot.files());
  } catch (const Failure& failure) {
    outcome.error = failure.error();
  } catch (const std::exception& error) {
    outcome.error = Error{Kind::system, fmt::format("checkpoint of step {}: {}", outcome.step, error.what()), kNoRank};
  }
  outcome.took = Clock::now() - start;
  if (outcome.saved)
    log_info("checkpoint of step {}: {} in {}", outcome.step, format_bytes(snapshot.bytes()), format_seconds(outcome.took));
  return outcome;
}

std::optional<Snapshot> warm_snapshot(std::size_t bytes) {
  try {
    Snapshot snapshot;
    const Bytes memory = snapshot.place("", "", Dtype::u8, {static_cast<std::int64_t>(bytes)});
    for (std::size_t at = 0; at < memory.size(); at += kPageBytes) memory[at] = std::byte{1};
    return snapshot;
  } catch (const std::exception& error) {
    log_warning("no memory for snapshots of {}: {}", format_bytes(bytes), error.what());
    return std::nullopt;
  }
}

}  // namespace

Writer::Writer(Store store, WriterOptions options)
    : Writer(
          [store = std::move(store)](const Manifest& manifest, std::span<const TensorFile> files) { return store.save(manifest, files); },
          options) {}

Writer::Writer(Save save, WriterOptions options)
    : options_(options),
      shared_(std::make_shared<Shared>(std::move(save))),
      thread_([shared = shared_, nice = options.nice] { run(shared, nice); }) {}

void Writer::run(const std::shared_ptr<Shared>& shared, int nice) {
  Trace::name_thread("checkpoint");
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);  // of this thread only; refused, it runs as the others do
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->next || shared->prepare > 0 || shared->leaving; });
    if (!shared->next && shared->leaving) return;
    if (!shared->next) {
      const auto bytes = std::exchange(shared->prepare, 0);
      lock.unlock();
      auto warm = warm_snapshot(bytes);
      lock.lock();
      if (warm) shared->keep(std::move(*warm));
      continue;
    }
    Snapshot snapshot = std::move(*shared->next);
    shared->next.reset();
    shared->saving = true;
    lock.unlock();
    auto outcome = save_one(shared->save, snapshot);
    lock.lock();
    shared->saving = false;
    shared->keep(std::move(snapshot));
    shared->outcomes.push_back(std::move(outcome));
    if (shared->outcomes.size() > kMostOutcomes) shared->outcomes.pop_front();
    shared->changed.notify_all();
  }
}

Writer::~Writer() {
  std::unique_lock lock(shared_->mutex);
  shared_->leaving = true;
  shared_->changed.notify_all();
  const bool idle = wait_for(shared_->changed, lock, Deadline::in(options_.drain), [&] { return !shared_->busy(); });
  const auto step = shared_->step;
  const auto untold = shared_->outcomes;
  lock.unlock();
  for (const Outcome& outcome : untold)
    if (outcome.error) log_error("{}", outcome.error->what);
  if (idle) {
    thread_.join();
    return;
  }
  log_error("checkpoint of step {} is not on disk after {} and is given up; the one before stays", step, format_seconds(options_.drain));
  thread_.detach();
}

void Writer::prepare(std::size_t bytes) {
  const std::lock_guard lock(shared_->mutex);
  shared_->prepare = bytes;
  shared_->changed.notify_all();
}

Snapshot Writer::begin() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->pool.empty()) return {};
  Snapshot snapshot = std::move(shared_->pool.back());
  shared_->pool.pop_back();
  return snapshot;
}

bool Writer::submit(Snapshot snapshot) {
  const Span span{"checkpoint.submit"};
  std::unique_lock lock(shared_->mutex);
  const auto step = snapshot.manifest.step;
  if (!wait_for(shared_->changed, lock, Deadline::in(options_.patience), [&] { return !shared_->busy(); })) {
    const int skipped = ++shared_->skipped;
    log_at(skipped < 2 ? Level::warning : Level::error,
           "checkpoint of step {} skipped: step {} is still being written ({} skipped in a row)", step, shared_->step, skipped);
    shared_->keep(std::move(snapshot));
    return false;
  }
  shared_->skipped = 0;
  shared_->step = step;
  shared_->next = std::move(snapshot);
  shared_->changed.notify_all();
  return true;
}

bool Writer::busy() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->busy();
}

int Writer::skipped() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->skipped;
}

std::optional<Outcome> Writer::poll() {
  const std::lock_guard lock(shared_->mutex);
  return shared_->take();
}

std::optional<Outcome> Writer::wait(Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  if (!wait_for(shared_->changed, lock, deadline, [&] { return !shared_->outcomes.empty() || !shared_->busy(); }))
    throw_failure(Kind::timeout, "checkpoint of step {} is still being written; a slow disk? It goes on in the background", shared_->step);
  return shared_->take();
}

}  // namespace cohort::checkpoint
