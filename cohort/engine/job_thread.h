// A JobThread does jobs one after the other, in the order they were given: collectives beside the thread that trains, which match on all
// ranks because every rank gives the same jobs in the same order.
// Owner: whoever gives the jobs. Threads: one that calls; jobs run on its own. Failure: the first one is kept, no job runs after it, and
// await() throws it ever after.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace cohort::engine {

class JobThread {
 public:
  // abort: ends the job that runs when this is destroyed, for which other ranks may never come.
  JobThread(std::string name, std::function<void()> abort);
  ~JobThread();
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  std::int64_t give(std::function<void()> job);  // its number, from 1
  void await(std::int64_t number);               // until that one is done; 0: at once
  void await_all();

 private:
  void run(const std::string& name);

  const std::function<void()> abort_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_, as all below
  std::int64_t given_ = 0, done_ = 0;
  bool stop_ = false, running_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace cohort::engine
