#include "cohort/python/engine.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/queue/signature.h"

namespace cohort::python {

struct Engine::World {
  Job job;
  std::unique_ptr<collective::Communicator> comm;  // makes the process sets; no data moves on it
  queue::QueueOptions options;
  std::map<int, std::shared_ptr<ProcessSet>> sets{};  // guarded by the engine's mutex_
  int next_set = 0;                                   // the same on every rank
};

namespace {

constexpr Seconds kParting{5};  // how long a rank that shuts down waits for the others to do so

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

std::vector<int> up_to(int size) {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  return all;
}

std::vector<std::vector<std::int64_t>> rows_of(const queue::Result& result, const Flight& flight) {
  std::vector<std::vector<std::int64_t>> rows;
  for (std::size_t part = 0; part < result.counts.size() && part < flight.rows.size(); ++part) {
    auto& each = rows.emplace_back();
    for (const std::size_t count : result.counts[part]) {
      each.push_back(static_cast<std::int64_t>(count) / std::max<std::int64_t>(1, flight.rows[part]));
    }
  }
  return rows;
}

}  // namespace

Engine::Engine() = default;
Engine::~Engine() = default;

void Engine::init(const EngineSettings& settings) {
  std::lock_guard one(sets_mutex_);
  if (initialized()) return;
  leave(std::exchange(bystander_, nullptr));
  auto world = std::make_shared<World>(World{cohort::init(), nullptr, settings.queue});
  const std::vector<Rank> chosen = settings.ranks.empty() ? std::vector<Rank>{} : checked(settings.ranks, world->job.size());
  world->comm = chosen.empty() ? world->job.comm().split(0) : world->job.comm().subset(chosen);
  if (!world->comm) {
    std::lock_guard lock(mutex_);
    owner_ = getpid();
    bystander_ = world;
    throw_failure(Kind::usage, "init(comm=[{}]) leaves rank {} out; it has no part in this world", fmt::join(settings.ranks, ", "),
                  world->job.rank().value);
  }
  std::vector<std::vector<int>> sets{up_to(world->comm->size())};
  sets.insert(sets.end(), settings.sets.begin(), settings.sets.end());
  for (const auto& ranks : sets) {  // one that is given twice is one
    if (!find_set(*world, checked(ranks, world->comm->size()))) world->sets[world->next_set++] = open_set(*world, ranks);
  }
  std::lock_guard lock(mutex_);
  world_ = std::move(world);
  owner_ = getpid();
}

// The queues go first, each when its peers have heard of it. The links stay until every rank has come here, but not for long: a rank that
// has all it needs must not be seen to leave by one that is still in the middle of the same operation.
void Engine::leave(std::shared_ptr<World> world) {
  if (!world) return;
  world->sets.clear();
  try {
    world->job.comm().barrier({.name = "shutdown", .deadline = Deadline::in(kParting)});
  } catch (const Failure& failure) {
    log_debug("shutdown without the others: {}", failure.what());
  }
}

void Engine::shutdown() {
  std::lock_guard one(sets_mutex_);
  std::shared_ptr<World> world;
  std::unordered_map<HandleId, Entry> entries;
  bool ours = false;
  {
    std::lock_guard lock(mutex_);
    world.swap(world_);
    entries.swap(entries_);
    ours = owner_ == getpid();
  }
  if (ours) {
    entries.clear();  // what is not waited for any more
    leave(std::exchange(bystander_, nullptr));
    leave(std::move(world));
    return timeline_.stop();
  }
  // A forked child has the parent's memory but none of its threads: there is nobody to close anything, and nothing of its own to close.
  static auto* const abandoned = new std::vector<std::shared_ptr<void>>;
  abandoned->push_back(std::move(world));
  for (auto& [id, entry] : entries) abandoned->push_back(std::make_shared<Entry>(std::move(entry)));
}

std::shared_ptr<Engine::World> Engine::world() const {
  std::lock_guard lock(mutex_);
  if (world_ && owner_ == getpid()) return world_;
  if (world_) throw_failure(Kind::usage, "this process was forked from rank {}; only that process is a rank", world_->comm->rank().value);
  throw_failure(Kind::usage, "Horovod has not been initialized; use hvd.init().");
}

bool Engine::initialized() const {
  std::lock_guard lock(mutex_);
  return world_ && owner_ == getpid();
}

int Engine::rank() const { return world()->comm->rank().value; }
int Engine::size() const { return world()->comm->size(); }
int Engine::local_rank() const { return world()->job.local_rank(); }
int Engine::local_size() const { return world()->job.local_size(); }

std::vector<std::string> Engine::hosts() const {
  std::vector<std::string> hosts;
  for (const auto& member : world()->job.roster().members) hosts.push_back(member.host);
  return hosts;
}

// ---- process sets

std::optional<int> Engine::find_set(const World& world, const std::vector<Rank>& ranks) {
  for (const auto& [id, set] : world.sets)
    if (set->ranks == ranks) return id;
  return std::nullopt;
}

std::shared_ptr<ProcessSet> Engine::open_set(World& world, const std::vector<int>& ranks) const {
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
  options.spoken = set->ranks;
  options.watch = [this](const queue::Event& event) { timeline_.see(event); };
  set->queue = std::make_unique<queue::Queue>(std::move(comm), std::move(options));
  return set;
}

int Engine::add_set(const std::vector<int>& ranks) {
  std::lock_guard one(sets_mutex_);
  const auto now = world();
  auto set = open_set(*now, ranks);
  std::lock_guard lock(mutex_);
  now->sets[now->next_set] = std::move(set);
  return now->next_set++;
}

bool Engine::remove_set(int id) {
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

std::map<int, std::vector<int>> Engine::sets() const {
  const auto now = world();
  std::lock_guard lock(mutex_);
  std::map<int, std::vector<int>> result;
  for (const auto& [id, set] : now->sets) result[id] = numbers(set->ranks);
  return result;
}

std::shared_ptr<ProcessSet> Engine::member(int set, std::string_view verb) const {
  const auto now = world();
  std::lock_guard lock(mutex_);
  const auto at = now->sets.find(set);
  if (at == now->sets.end())
    throw_failure(Kind::usage, "{}: there is no process set number {}; it was never added, or is removed", verb, set);
  if (at->second->queue) return at->second;
  throw_failure(Kind::usage, "{}: rank {} is not a member of process set {}, which has ranks [{}]", verb, now->comm->rank().value, set,
                fmt::join(numbers(at->second->ranks), ", "));
}

// ---- operations

HandleId Engine::submit(int set, Request request, const std::string& name) {
  const std::string_view verb = queue::spoken(request.operation.verb);
  const auto where = member(set, verb);
  if (request.operation.verb == queue::Verb::broadcast) {
    const auto at = std::find(where->ranks.begin(), where->ranks.end(), request.operation.root);
    if (at == where->ranks.end()) {
      throw_failure(Kind::usage, "broadcast '{}': root rank {} is not in the process set of ranks [{}]", name, request.operation.root.value,
                    fmt::join(numbers(where->ranks), ", "));
    }
    request.operation.root = Rank{static_cast<int>(at - where->ranks.begin())};
  }
  request.operation.name = fmt::format("{} {}", verb, name);
  queue::check(request.operation, where->mine, where->queue->size());  // what is refused here takes no number of the nameless
  if (name.empty()) {  // counted anew after each join: ranks that had less to do than others meet there again
    std::lock_guard lock(mutex_);
    request.operation.name = fmt::format("{}.noname.{}.{}", verb, where->joins, where->unnamed[request.operation.verb]++);
  } else {
    request.operation.name = fmt::format("{}.{}", verb, name);
  }
  request.hold.reset();  // the operation's alone from here on
  const auto handle = where->queue->submit(std::move(request.operation));
  return remember({where, handle, std::move(request.flight)});
}

HandleId Engine::join() {
  const auto everyone = member(0, "join");
  return remember({everyone, everyone->queue->join(), std::make_shared<Flight>(), true});
}

HandleId Engine::remember(Entry entry) {
  std::lock_guard lock(mutex_);
  entries_.emplace(next_, std::move(entry));
  return next_++;
}

std::optional<Engine::Entry> Engine::find(HandleId id) const {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? std::nullopt : std::optional(at->second);
}

bool Engine::poll(HandleId id) const {
  const auto entry = find(id);
  if (!entry) throw_failure(Kind::usage, "handle {} stands for no operation: it was synchronized already, or never given out", id);
  return entry->set->queue->poll(entry->handle);
}

bool Engine::help(HandleId id, Deadline look_up) const {
  const auto entry = find(id);
  return !entry || entry->set->queue->help(entry->handle, look_up);
}

std::optional<Landing> Engine::take(HandleId id) {
  std::optional<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return std::nullopt;
    entry = std::move(at->second);
    entries_.erase(at);
  }
  entry->flight->restore_shapes();
  queue::Result result = entry->set->queue->wait(entry->handle);
  if (entry->joins) {
    std::lock_guard lock(mutex_);
    ++entry->set->joins;
    entry->set->unnamed.clear();
    return Landing{{}, {}, result.last_joined.value};
  }
  return Landing{std::move(entry->flight->outputs), rows_of(result, *entry->flight), -1};
}

void Engine::start_timeline(const std::string& path, bool mark_cycles) {
  if (rank() == 0) timeline_.start(path, mark_cycles);
}

void Engine::stop_timeline() {
  world();
  timeline_.stop();
}

Engine& engine() {
  static auto* const one = new Engine;  // for ever: threads of a process that ends without shutdown() may still be at work
  return *one;
}

}  // namespace cohort::python
