// Callbacks for failed peers. Each is called once for each peer, with no lock held: it may abort the links, while their peers (threads of
// this process, in tests) are in a callback that aborts theirs. So callbacks for different peers may run at the same time.
// Owner: TransportBase. Threads: any. Failure: none; a callback must not throw.
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
  // `before` reports the failures so far through its argument.
  int add(Call call, const std::function<void(const Call& report)>& before);
  void remove(int id);  // returns when its running callbacks have ended, unless called from one of them
  void report(Rank peer, const Error& error) noexcept;

 private:
  struct Watcher;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Watcher>> all_;  // guarded by mutex_; shared with threads that are reporting
  int next_ = 1;                                 // guarded by mutex_
};

}  // namespace cohort::net
