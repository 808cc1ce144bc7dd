#include "cohort/net/transport/watchers.h"

#include <algorithm>
#include <condition_variable>
#include <set>
#include <thread>
#include <vector>

namespace cohort::net {

struct Watchers::Watcher {
  const Call call;
  std::mutex mutex;
  std::condition_variable ended;
  std::set<std::int32_t> reported;       // guarded by mutex
  std::vector<std::thread::id> running;  // guarded by mutex: threads inside `call`
  bool gone = false;                     // guarded by mutex

  explicit Watcher(Call c) : call(std::move(c)) {}
  void report(Rank peer, const Error& error) noexcept {
    {
      const std::lock_guard lock(mutex);
      if (gone || !reported.insert(peer.value).second) return;
      running.push_back(std::this_thread::get_id());
    }
    call(peer, error);
    const std::lock_guard lock(mutex);
    running.erase(std::find(running.begin(), running.end(), std::this_thread::get_id()));
    ended.notify_all();
  }
  void stop() {
    std::unique_lock lock(mutex);
    gone = true;
    const auto inside = std::find(running.begin(), running.end(), std::this_thread::get_id());
    if (inside == running.end()) ended.wait(lock, [this] { return running.empty(); });
  }
};

Watchers::Watchers() = default;
Watchers::~Watchers() = default;

int Watchers::add(Call call, const std::function<void(const Call& report)>& before) {
  const auto watcher = std::make_shared<Watcher>(std::move(call));
  int id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = next_++;
    all_.emplace(id, watcher);  // first: what fails from here on is reported, and only once
  }
  before([&](Rank peer, const Error& error) { watcher->report(peer, error); });
  return id;
}

void Watchers::remove(int id) {
  std::shared_ptr<Watcher> watcher;
  {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(id);
    if (at == all_.end()) return;
    watcher = at->second;
    all_.erase(at);
  }
  watcher->stop();
}

void Watchers::report(Rank peer, const Error& error) noexcept {
  std::vector<std::shared_ptr<Watcher>> now;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, watcher] : all_) now.push_back(watcher);
  }
  for (const auto& watcher : now) watcher->report(peer, error);
}

}  // namespace cohort::net
