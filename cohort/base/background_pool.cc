#include "cohort/base/background_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cohort {

struct BackgroundPool::Shared {
  const std::size_t most;  // threads
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::packaged_task<void()>> jobs;  // guarded by mutex
  bool stopping = false;                        // likewise
  std::size_t idle = 0;                         // likewise
  std::vector<std::thread> threads;             // likewise

  explicit Shared(int n) : most(static_cast<std::size_t>(std::max(1, n))) {}
  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [&] { return stopping || !jobs.empty(); });
      --idle;
      if (stopping) return;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }
};

BackgroundPool::BackgroundPool(int threads) : shared_(std::make_unique<Shared>(threads)) {}

BackgroundPool::~BackgroundPool() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  for (auto& thread : shared_->threads) thread.join();
}

BackgroundPool::Ticket BackgroundPool::submit(std::function<void()> job) {
  std::packaged_task<void()> task(std::move(job));
  Ticket ticket = task.get_future().share();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back(std::move(task));
    if (shared_->idle < shared_->jobs.size() && shared_->threads.size() < shared_->most)
      shared_->threads.emplace_back([shared = shared_.get()] { shared->work(); });
  }
  shared_->changed.notify_one();
  return ticket;
}

}  // namespace cohort
