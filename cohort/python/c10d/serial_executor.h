// A SerialExecutor runs tasks one after the other, in the order they were put. It has no thread of its own: a caller that waits for its
// task runs the tasks up to it (a synchronous call needs no other thread), else a thread of the ThreadPool does. A task's callbacks
// (run_callbacks(): users' code, which may wait for a later task of the same executor) run after the executor was released, so a callback
// can never hold up what it waits for. Owner: a process group; one for its collectives, one for each stream of messages.
// Threads: any. Failure: a task's own, see SerialTask::run().
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::python {

// Threads that run the tasks given to call(). One is started only when all others are busy, so a callback that blocks one of them is
// harmless.
class ThreadPool {
 public:
  ~ThreadPool() { join_all(); }
  void call(std::function<void()> task);
  void join_all();  // after the tasks given so far; call() is not allowed afterwards

 private:
  struct State {  // shared with the threads: one of them may be the one that destroys the ThreadPool
    std::mutex mutex;
    std::condition_variable ready;
    // ---- guarded by mutex
    std::deque<std::function<void()>> tasks;
    std::size_t idle = 0;
    bool over = false;
  };
  static void worker_loop(State& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<std::thread> threads_;  // guarded by state_->mutex
};

class SerialTask {
 public:
  virtual ~SerialTask() = default;
  virtual void run() noexcept = 0;            // the work; afterwards done() is true and waiters know it
  virtual void run_callbacks() noexcept = 0;  // users' callbacks, outside the executor
  virtual bool done() const = 0;
  virtual bool has_callbacks() const = 0;  // run_callbacks() may run users' code
};

class SerialExecutor : public std::enable_shared_from_this<SerialExecutor> {
 public:
  explicit SerialExecutor(ThreadPool& thread_pool) : thread_pool_(thread_pool) {}

  // soon: a thread of the pool is called now. Else the task waits for help() or for a later task put with `soon`.
  void put(std::shared_ptr<SerialTask> task, bool soon);
  void start();                       // what is queued is run now, by the pool
  bool help(const SerialTask& task);  // runs tasks up to and including this one; false: another thread runs them
  bool drained(Deadline deadline);
  bool idle();  // nothing is queued, no thread runs

 private:
  void call_thread_pool();  // mutex_ held
  void work(const SerialTask* until);

  ThreadPool& thread_pool_;
  std::mutex mutex_;
  std::condition_variable idle_changed_;
  // ---- guarded by mutex_
  std::deque<std::shared_ptr<SerialTask>> tasks_;
  bool running_ = false;    // a thread runs tasks
  bool scheduled_ = false;  // a thread of the pool has been called
};

}  // namespace cohort::python
