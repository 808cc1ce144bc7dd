// The HorovodRuntime's process sets.
#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/python/hvd/runtime_world.h"

namespace cohort::python {

std::vector<Rank> checked(std::vector<int> ranks, int size) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.empty()) throw_failure(Kind::usage, "a process set needs at least one rank");
  if (ranks.front() < 0 || ranks.back() >= size) {
    throw_failure(Kind::usage, "a process set of ranks [{}]: there are ranks 0 to {}", fmt::join(ranks, ", "), size - 1);
  }
  if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    throw_failure(Kind::usage, "a process set of ranks [{}] names a rank twice", fmt::join(ranks, ", "));
  }
  std::vector<Rank> result;
  for (const int rank : ranks) result.push_back(Rank{rank});
  return result;
}

std::vector<int> numbers(const std::vector<Rank>& ranks) {
  std::vector<int> result;
  for (const Rank rank : ranks) result.push_back(rank.value);
  return result;
}

std::optional<int> HorovodRuntime::find_set(const World& world, const std::vector<Rank>& ranks) {
  for (const auto& [id, set] : world.sets)
    if (set->ranks == ranks) return id;
  return std::nullopt;
}

std::shared_ptr<ProcessSet> HorovodRuntime::open_set(World& world, const std::vector<int>& ranks) const {
  auto set = std::make_shared<ProcessSet>();
  set->ranks = checked(ranks, world.comm->size());
  if (const auto id = find_set(world, set->ranks))
    throw_failure(Kind::usage, "a process set of ranks [{}] exists already: number {}", fmt::join(ranks, ", "), *id);
  const std::string name = fmt::format("process set [{}]", fmt::join(numbers(set->ranks), ", "));
  auto comm = world.comm->subset(set->ranks, {.name = name});
  if (!comm) return set;
  set->mine = comm->rank();
  queue::QueueOptions options = world.options;
  options.mode = queue::Mode::negotiated;
  options.factors_in_type = true;
  options.rank_labels = set->ranks;
  options.on_event = [this](const queue::Event& event) { timeline_.on_event(event); };
  set->queue = std::make_unique<queue::Queue>(std::move(comm), std::move(options));
  return set;
}

int HorovodRuntime::add_set(const std::vector<int>& ranks) {
  std::lock_guard one(sets_mutex_);
  const auto now = world();
  auto set = open_set(*now, ranks);
  std::lock_guard lock(mutex_);
  now->sets[now->next_set] = std::move(set);
  return now->next_set++;
}

std::unique_ptr<collective::Communicator> HorovodRuntime::split_all() {
  std::lock_guard one(sets_mutex_);
  return world()->comm->split(0, 0, {.name = "connections of their own"});
}

bool HorovodRuntime::remove_set(int id) {
  std::lock_guard one(sets_mutex_);
  const auto now = world();
  std::shared_ptr<ProcessSet> set;
  {
    std::lock_guard lock(mutex_);
    const auto at = now->sets.find(id);
    if (id == 0 || at == now->sets.end()) return false;
    set = at->second;
  }
  now->comm->barrier({.name = fmt::format("removal of process set {}", id)});
  std::lock_guard lock(mutex_);
  now->sets.erase(id);
  return true;
}

std::map<int, std::vector<int>> HorovodRuntime::sets() const {
  const auto now = world();
  std::lock_guard lock(mutex_);
  std::map<int, std::vector<int>> result;
  for (const auto& [id, set] : now->sets) result[id] = numbers(set->ranks);
  return result;
}

std::shared_ptr<ProcessSet> HorovodRuntime::member(int set, std::string_view collective) const {
  const auto now = world();
  std::lock_guard lock(mutex_);
  const auto at = now->sets.find(set);
  if (at == now->sets.end())
    throw_failure(Kind::usage, "{}: there is no process set number {}; it was never added, or is removed", collective, set);
  if (at->second->queue) return at->second;
  throw_failure(Kind::usage, "{}: rank {} is not a member of process set {}, which has ranks [{}]", collective, now->comm->rank().value,
                set, fmt::join(numbers(at->second->ranks), ", "));
}

}  // namespace cohort::python
