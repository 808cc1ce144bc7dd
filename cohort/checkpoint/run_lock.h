// Which job writes into a run's folder. The file <folder>/.owner names it: job, host, process and since when. A second job that is given
// the same folder is refused with that name. Whose process is gone (on this host, or before it was booted) has left the folder, and the
// next takes it over and says so. Of another host nobody can tell: an owner touches the file every `refresh`; one that does so while we
// look is alive, one that has not for `lost` has left. It relies on link() and rename() being atomic, which NFS gives too (where a file
// system has no links: on O_EXCL), on the file system's clock alone, and on no lock of the kernel. It keeps jobs apart that mean no harm;
// what makes sure that a job which was taken for lost, and goes on later, changes nothing is the fence (fence.h), which the new owner
// raises. Owner: rank 0 of a job. Threads: one; its own touches the file. Failure: Kind::usage naming the owner, Kind::corrupt where .owner
// is a link or no regular file, Kind::system naming the path.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "cohort/base/deadline.h"

namespace cohort::checkpoint {

struct RunOwner {
  std::string job;                    // its name with, in an elastic job, that of its launch (job_of_launch)
  std::string host, boot, pids;       // boot: differs after each boot of the host. pids: the namespace in which pid counts
  std::int64_t pid = 0, started = 0;  // started: in the kernel's clock, so that a pid that is used again is another process
  std::string since{};                // for people
};
RunOwner this_process(std::string job);
// Two launches may be given one name, and are two jobs: each has a number of its own (COHORT_LAUNCH_ID, the same on all its workers).
std::string job_of_launch(const std::string& job, const std::string& launch);
std::string to_text(const RunOwner& owner);

struct RunLockOptions {
  bool takeover = false;  // whoever holds it
  bool had = false;       // in an earlier membership epoch this job had it: who has it now took it over
  Seconds refresh{5};
  Seconds lost{60};
  std::function<void()> looked{};  // after each look at an owner that is waited for: the folder answers
};

class RunLock {
 public:
  // Of the same job and launch, another process' is taken over in silence: rank 0 of an elastic job may move. Where the disk has no room
  // to write that down the folder is the job's all the same: it is warned about, and tried again.
  RunLock(std::string folder, const RunOwner& mine, RunLockOptions options = {});
  ~RunLock();  // gives the folder free, if it is still ours
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Looks. What cannot be looked at, on a network file system that is away for a while, still is ours. Threads: any.
  bool holds();
  void leave_it() { leaves_ = true; }    // the file stays when this goes: the job goes on, and its next rank 0 takes it
  bool taken() const { return taken_; }  // by another job, as the last look showed
  std::string owner() const { return taken_ ? owner_ : ""; }

 private:
  void take(const RunOwner& mine) const;
  void touch_until_stopped();
  bool touch();        // false: another holds it
  bool write_moved();  // the same, while moved_from_ is set

  const std::string folder_, text_, job_;
  const RunLockOptions options_;
  std::mutex look_;         // one look at a time
  std::string owner_;       // set before taken_
  std::string moved_from_;  // of the process that was rank 0 before this one, as long as the file has that; guarded by look_
  std::atomic<bool> taken_{false};
  bool leaves_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace cohort::checkpoint
