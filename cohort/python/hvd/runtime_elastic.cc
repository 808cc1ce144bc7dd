// The HorovodRuntime in an elastic job: from one epoch to the next, and the votes in between.
#include <ATen/ops/full.h>
#include <unistd.h>

#include "cohort/base/error.h"
#include "cohort/python/hvd/runtime.h"

namespace cohort::python {
namespace {

constexpr Seconds kExitGrace{2};  // at exit: the last messages of a process that ends at once may be lost with its connection

}  // namespace

HorovodRuntime::Next HorovodRuntime::next_epoch(Deadline return_by) {
  std::lock_guard one(sets_mutex_);
  if (!session_) {
    session_ = ElasticSession::from_environment();
    if (!session_) return Next::fixed;
    session_pid_ = getpid();
  }
  const auto next = session().next(return_by);
  if (!next) return Next::later;
  return *next == ElasticSession::Next::epoch ? Next::epoch : *next == ElasticSession::Next::released ? Next::released : Next::over;
}

ElasticSession& HorovodRuntime::session() const {
  if (!session_) throw_failure(Kind::usage, "this job is not elastic, or hvd.init() has not been called");
  if (session_pid_ != getpid())
    throw_failure(Kind::usage, "this process was forked from a worker of an elastic job; only that process is one");
  return *session_;
}

bool HorovodRuntime::elastic() const { return session_ && session_pid_ == getpid() && session_->inside(); }

bool HorovodRuntime::between_epochs() const { return session_ && session_pid_ == getpid() && !session_->inside() && !session_->over(); }

void HorovodRuntime::leave_epoch() {
  std::lock_guard one(sets_mutex_);
  std::unordered_map<HandleId, Entry> entries;
  std::shared_ptr<World> world;
  {
    std::lock_guard lock(mutex_);
    world = world_;
    entries.swap(entries_);
  }
  entries.clear();  // what is not waited for any more
  if (world && session().inside()) disconnect(*world);
}

bool HorovodRuntime::commit_counts() const { return session().commit_counts(); }

void HorovodRuntime::state_synced() { session().state_synced(); }

HandleId HorovodRuntime::vote(bool wish, const std::string& what) {
  const auto all_ranks = member(0, what);
  try {
    if (what == "commit") session().prepare();
  } catch (const Failure& failure) {
    note_failure(*all_ranks, failure);
    throw;
  }
  const bool change = wish || session().wish();
  return submit(0, all_gather({at::full({1}, change ? 1 : 0, at::kInt)}), "elastic." + what);
}

void HorovodRuntime::decide() {
  const auto all_ranks = member(0, "commit");
  try {
    session().decide();
  } catch (const Failure& failure) {
    note_failure(*all_ranks, failure);
    throw;
  }
}

void HorovodRuntime::end_job() { session().end(); }

// The session's thread must not outlive what it uses: libraries clean up after main().
void HorovodRuntime::end_at_exit(bool well) {
  if (session_pid_ != getpid()) return;  // not elastic, or a forked child, where the lock may be held by a thread that is not there
  std::lock_guard one(sets_mutex_);
  if (!session_) return;
  if (well && session_->departed()) {
    session_->end();
    session_->next(Deadline::in(kExitGrace));
  }
  if (session_->idle(Deadline::in(kExitGrace))) session_.reset();
}

void HorovodRuntime::ask_to_leave(const std::string& why) { session().ask_to_leave(why); }

}  // namespace cohort::python
