// A Conveyor carries jobs one after the other, in the order they were put on it. Nobody owns it all the time: a caller that waits for its
// job takes over and works the belt up to it (a synchronous call needs no other thread), else a thread of the Crew does.
// What a job tells to others when it ends (tell(): users' callbacks, which may wait for a later job of the same belt) runs after the
// belt was let go, so a callback can never hold up what it waits for.
// Owner: a process group; one for its collectives, one for each stream of messages. Threads: any. Failure: a job's own, see Job::run().
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

// Threads that do what they are called for. One is started only when all others are busy, so a callback that blocks one of them is
// harmless.
class Crew {
 public:
  ~Crew() { dismiss(); }
  void call(std::function<void()> task);
  void dismiss();  // after the tasks called for so far; nothing may be called for afterwards

 private:
  struct Board {  // shared with the threads: one of them may be the one that lets the Crew go
    std::mutex mutex;
    std::condition_variable bell;
    // ---- guarded by mutex
    std::deque<std::function<void()>> tasks;
    std::size_t idle = 0;
    bool over = false;
  };
  static void serve(Board& board);

  const std::shared_ptr<Board> board_ = std::make_shared<Board>();
  std::vector<std::thread> threads_;  // guarded by board_->mutex
};

class Job {
 public:
  virtual ~Job() = default;
  virtual void run() noexcept = 0;   // the work; afterwards done() is true and waiters know it
  virtual void tell() noexcept = 0;  // users' callbacks, without the belt
  virtual bool done() const = 0;
  virtual bool listened_to() const = 0;  // tell() may run users' code
};

class Conveyor : public std::enable_shared_from_this<Conveyor> {
 public:
  explicit Conveyor(Crew& crew) : crew_(crew) {}

  // soon: a thread of the crew is called now. Else the job waits for help() or for a later one that is put on with `soon`.
  void put(std::shared_ptr<Job> job, bool soon);
  void start();               // what lies on the belt is carried now, by the crew
  bool help(const Job& job);  // works up to and including this job; false: somebody else has the belt
  bool drained(Deadline deadline);
  bool idle();  // nothing lies on it, nobody works

 private:
  void call_crew();  // mutex_ held
  void work(const Job* until);

  Crew& crew_;
  std::mutex mutex_;
  std::condition_variable still_;
  // ---- guarded by mutex_
  std::deque<std::shared_ptr<Job>> belt_;
  bool held_ = false;    // somebody works
  bool called_ = false;  // a thread of the crew is on its way
};

}  // namespace cohort::python
