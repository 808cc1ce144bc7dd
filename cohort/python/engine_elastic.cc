// The Engine in an elastic job: from one epoch to the next, and the votes in between.
#include <ATen/ops/full.h>
#include <unistd.h>

#include "cohort/base/error.h"
#include "cohort/python/engine.h"

namespace cohort::python {
namespace {

constexpr Seconds kFarewell{2};  // at exit: what a process has said that ends at once may be lost with its connection

}  // namespace

Engine::Next Engine::next_epoch(Deadline look_up) {
  std::lock_guard one(sets_mutex_);
  if (!attendance_) {
    attendance_ = Attendance::from_environment();
    if (!attendance_) return Next::fixed;
    attends_ = getpid();
  }
  const auto word = attendance().next(look_up);
  if (!word) return Next::later;
  return *word == Attendance::Word::epoch ? Next::epoch : *word == Attendance::Word::released ? Next::released : Next::over;
}

Attendance& Engine::attendance() const {
  if (!attendance_) throw_failure(Kind::usage, "this job is not elastic, or hvd.init() has not been called");
  if (attends_ != getpid()) throw_failure(Kind::usage, "this process was forked from a worker of an elastic job; only that process is one");
  return *attendance_;
}

bool Engine::elastic() const { return attendance_ && attends_ == getpid() && attendance_->inside(); }

bool Engine::between() const { return attendance_ && attends_ == getpid() && !attendance_->inside() && !attendance_->over(); }

void Engine::leave_epoch() {
  std::lock_guard one(sets_mutex_);
  std::unordered_map<HandleId, Entry> entries;
  std::shared_ptr<World> world;
  {
    std::lock_guard lock(mutex_);
    world = world_;
    entries.swap(entries_);
  }
  entries.clear();  // what is not waited for any more
  if (world && attendance().inside()) part(*world);
}

bool Engine::finishes() const { return attendance().finishes(); }

void Engine::healed() { attendance().healed(); }

HandleId Engine::vote(bool wish, const std::string& what) {
  const auto everyone = member(0, what);
  try {
    if (what == "commit") attendance().prepare();
  } catch (const Failure& failure) {
    note(*everyone, failure);
    throw;
  }
  const bool change = wish || attendance().wish();
  return submit(0, all_gather({at::full({1}, change ? 1 : 0, at::kInt)}), "elastic." + what);
}

void Engine::decide() {
  const auto everyone = member(0, "commit");
  try {
    attendance().decide();
  } catch (const Failure& failure) {
    note(*everyone, failure);
    throw;
  }
}

void Engine::end_job() { attendance().end(); }

// The seat's thread must not outlive what it stands on: libraries clean up after main().
void Engine::end_at_exit(bool well) {
  if (attends_ != getpid()) return;  // not elastic, or a forked child, where the lock may be held by nobody
  std::lock_guard one(sets_mutex_);
  if (!attendance_) return;
  if (well && attendance_->parted()) {
    attendance_->end();
    attendance_->next(Deadline::in(kFarewell));
  }
  if (attendance_->idle(Deadline::in(kFarewell))) attendance_.reset();
}

void Engine::ask_to_leave(const std::string& why) { attendance().ask_to_leave(why); }

}  // namespace cohort::python
