// Threads for work that a step starts and a later one needs: roots of matrices, for instance, while training goes on.
//   BackgroundPool::Ticket root = pool.submit([&] { .. });             // step t
//   pool.wait(root);                                                   // step t + k: always the same one, so that results repeat
// Jobs are begun in the order given. The first thread starts with the first job; a pool that is not used costs nothing.
// Owner: an engine. Threads: any may submit and wait. Failure: wait() throws what the job threw. The destructor waits for what has begun,
// and drops what has not.
#pragma once
#include <cstdint>
#include <functional>
#include <future>
#include <memory>

namespace cohort {

class BackgroundPool {
 public:
  using Ticket = std::shared_future<void>;

  explicit BackgroundPool(int threads = 1);
  ~BackgroundPool();
  BackgroundPool(const BackgroundPool&) = delete;
  BackgroundPool& operator=(const BackgroundPool&) = delete;

  Ticket submit(std::function<void()> job);
  static void wait(const Ticket& ticket) { ticket.get(); }

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace cohort
