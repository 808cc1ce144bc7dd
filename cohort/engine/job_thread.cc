#include "cohort/engine/job_thread.h"

#include <utility>

#include "cohort/base/trace.h"
#include "cohort/collective/shared/wait_timer.h"

namespace cohort::engine {

JobThread::JobThread(std::string name, std::function<void()> abort)
    : abort_(std::move(abort)), thread_([this, name = std::move(name)] { run(name); }) {}

JobThread::~JobThread() {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waits = running_ && !failure_;
  }
  changed_.notify_all();
  if (waits) abort_();  // without this the thread would wait until the job's deadline
  thread_.join();
}

std::int64_t JobThread::give(std::function<void()> job) {
  std::int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    number = ++given_;
  }
  changed_.notify_all();
  return number;
}

void JobThread::await(std::int64_t number) {
  std::unique_lock lock(mutex_);
  if (!failure_ && done_ >= number) return;
  const collective::WaitTimer here;
  changed_.wait(lock, [&] { return failure_ || done_ >= number; });  // the collective inside has its deadline
  if (failure_) std::rethrow_exception(failure_);
}

void JobThread::await_all() {
  std::int64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = given_;
  }
  await(last);
}

void JobThread::run(const std::string& name) {
  Trace::name_thread(name);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failure_ && !jobs_.empty()); });
    if (stop_) return;
    const auto job = std::exchange(jobs_.front(), nullptr);
    jobs_.pop_front();
    running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    running_ = false;
    failure_ = failure;
    if (!failure) ++done_;
    changed_.notify_all();
  }
}

}  // namespace cohort::engine
