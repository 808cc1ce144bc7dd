#include "cohort/python/c10d/serial_executor.h"

namespace cohort::python {

void ThreadPool::call(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  if (state_->tasks.size() > state_->idle) threads_.emplace_back([state = state_] { worker_loop(*state); });
  state_->ready.notify_one();
}

void ThreadPool::worker_loop(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    ++state.idle;
    state.ready.wait(lock, [&] { return state.over || !state.tasks.empty(); });
    --state.idle;
    if (state.tasks.empty()) return;
    auto task = std::move(state.tasks.front());
    state.tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void ThreadPool::join_all() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
    threads.swap(threads_);
  }
  state_->ready.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();  // the last reference was dropped inside a callback: this thread ends right after it
    } else {
      thread.join();
    }
  }
}

void SerialExecutor::put(std::shared_ptr<SerialTask> task, bool soon) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (soon) call_thread_pool();
}

void SerialExecutor::start() {
  const std::lock_guard lock(mutex_);
  call_thread_pool();
}

void SerialExecutor::call_thread_pool() {
  if (running_ || scheduled_ || tasks_.empty()) return;  // the thread that runs now checks again before it stops
  scheduled_ = true;
  thread_pool_.call([self = shared_from_this()] {
    {
      const std::lock_guard inner(self->mutex_);
      self->scheduled_ = false;
      if (self->running_ || self->tasks_.empty()) return self->idle_changed_.notify_all();
      self->running_ = true;
    }
    self->work(nullptr);
  });
}

bool SerialExecutor::help(const SerialTask& task) {
  {
    const std::lock_guard lock(mutex_);
    if (running_ || tasks_.empty()) return task.done();
    running_ = true;
  }
  work(&task);
  return task.done();
}

void SerialExecutor::work(const SerialTask* until) {
  for (;;) {
    std::shared_ptr<SerialTask> task;
    {
      const std::lock_guard lock(mutex_);
      const bool enough = until != nullptr && until->done();
      if (tasks_.empty() || enough) {
        running_ = false;
        call_thread_pool();
        idle_changed_.notify_all();
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task->run();
    if (!task->has_callbacks()) continue;
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
      call_thread_pool();
      idle_changed_.notify_all();
    }
    task->run_callbacks();
    const std::lock_guard lock(mutex_);
    if (running_ || scheduled_ || tasks_.empty() || (until != nullptr && until->done())) return;
    running_ = true;
  }
}

bool SerialExecutor::drained(Deadline deadline) {
  std::unique_lock lock(mutex_);
  call_thread_pool();
  const auto idle = [this] { return tasks_.empty() && !running_ && !scheduled_; };
  if (deadline.never()) return idle_changed_.wait(lock, idle), true;
  return idle_changed_.wait_until(lock, deadline.at(), idle);
}

bool SerialExecutor::idle() {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !running_ && !scheduled_;
}

}  // namespace cohort::python
