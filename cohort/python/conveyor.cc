#include "cohort/python/conveyor.h"

namespace cohort::python {

void Crew::call(std::function<void()> task) {
  const std::lock_guard lock(board_->mutex);
  board_->tasks.push_back(std::move(task));
  if (board_->tasks.size() > board_->idle) threads_.emplace_back([board = board_] { serve(*board); });
  board_->bell.notify_one();
}

void Crew::serve(Board& board) {
  std::unique_lock lock(board.mutex);
  for (;;) {
    ++board.idle;
    board.bell.wait(lock, [&] { return board.over || !board.tasks.empty(); });
    --board.idle;
    if (board.tasks.empty()) return;
    auto task = std::move(board.tasks.front());
    board.tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void Crew::dismiss() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(board_->mutex);
    board_->over = true;
    threads.swap(threads_);
  }
  board_->bell.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();  // the last reference went inside a callback: this thread ends right after it
    } else {
      thread.join();
    }
  }
}

void Conveyor::put(std::shared_ptr<Job> job, bool soon) {
  const std::lock_guard lock(mutex_);
  belt_.push_back(std::move(job));
  if (soon) call_crew();
}

void Conveyor::start() {
  const std::lock_guard lock(mutex_);
  call_crew();
}

void Conveyor::call_crew() {
  if (held_ || called_ || belt_.empty()) return;  // who works now looks again before it goes
  called_ = true;
  crew_.call([self = shared_from_this()] {
    {
      const std::lock_guard inner(self->mutex_);
      self->called_ = false;
      if (self->held_ || self->belt_.empty()) return self->still_.notify_all();
      self->held_ = true;
    }
    self->work(nullptr);
  });
}

bool Conveyor::help(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (held_ || belt_.empty()) return job.done();
    held_ = true;
  }
  work(&job);
  return job.done();
}

void Conveyor::work(const Job* until) {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      const std::lock_guard lock(mutex_);
      const bool enough = until != nullptr && until->done();
      if (belt_.empty() || enough) {
        held_ = false;
        call_crew();
        still_.notify_all();
        return;
      }
      job = std::move(belt_.front());
      belt_.pop_front();
    }
    job->run();
    if (!job->listened_to()) continue;
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
      call_crew();
      still_.notify_all();
    }
    job->tell();
    const std::lock_guard lock(mutex_);
    if (held_ || called_ || belt_.empty() || (until != nullptr && until->done())) return;
    held_ = true;
  }
}

bool Conveyor::drained(Deadline deadline) {
  std::unique_lock lock(mutex_);
  call_crew();
  const auto calm = [this] { return belt_.empty() && !held_ && !called_; };
  if (deadline.never()) return still_.wait(lock, calm), true;
  return still_.wait_until(lock, deadline.at(), calm);
}

bool Conveyor::idle() {
  const std::lock_guard lock(mutex_);
  return belt_.empty() && !held_ && !called_;
}

}  // namespace cohort::python
