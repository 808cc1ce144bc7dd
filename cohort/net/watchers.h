// Who wants to know that a peer failed. Each watcher hears of each peer once, with no lock held: a callback may abort the mesh, whose peers
// (threads of this process, in tests) may be in a callback that aborts theirs. So callbacks for different peers may run at the same time.
// Owner: Hub. Threads: any. Failure: none; a callback must not throw.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "cohort/base/error.h"
#include "cohort/base/ids.h"

namespace cohort::net {

class Watchers {
 public:
  using Call = std::function<void(Rank, const Error&)>;
  Watchers();
  ~Watchers();
  // `before` is asked for the failures so far, and tells them through what it is given.
  int add(Call call, const std::function<void(const Call& tell)>& before);
  void remove(int id);  // returns when its running callbacks have ended, unless one of them is who calls
  void report(Rank peer, const Error& error) noexcept;

 private:
  struct Watcher;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Watcher>> all_;  // guarded by mutex_; shared with threads that are reporting
  int next_ = 1;                                 // guarded by mutex_
};

}  // namespace cohort::net
