#include "cohort/python/engine.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/python/engine_world.h"
#include "cohort/queue/signature.h"

namespace cohort::python {
namespace {

constexpr Seconds kParting{5};  // how long a rank that shuts down waits for the others to do so

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

bool Engine::init(const EngineSettings& settings) {
  std::lock_guard one(sets_mutex_);
  if (initialized()) return true;
  leave(std::exchange(bystander_, nullptr));
  const auto world = open_world(settings);
  if (!world) return false;
  try {
    open_sets(*world, settings);
  } catch (const Failure& failure) {
    if (!attendance_) throw;
    world->trouble = failure.error();
    leave(world);
    if (!ends_epoch(failure.error())) throw;
    return false;
  } catch (...) {  // the seat must not abort links that are gone
    if (attendance_) attendance_->step_out(Error{Kind::system, "the process sets could not be opened", kNoRank});
    throw;
  }
  std::lock_guard lock(mutex_);
  world_ = world;
  owner_ = getpid();
  return true;
}

std::shared_ptr<Engine::World> Engine::open_world(const EngineSettings& settings) {
  if (!attendance_) {
    Job job = cohort::init();
    const int local_rank = job.local_rank(), local_size = job.local_size();
    group::Roster roster = job.roster();
    return std::make_shared<World>(World{std::move(job), nullptr, nullptr, std::move(roster), local_rank, local_size, settings.queue});
  }
  if (!settings.ranks.empty()) throw_failure(Kind::usage, "init(comm=...) chooses among ranks, and those of an elastic job change");
  auto links = attendance().connect();
  if (!links) return nullptr;
  const group::Roster& roster = attendance_->epoch().roster;
  const auto here = [&](const group::Member& m) { return m.host == roster.members[static_cast<std::size_t>(links->rank().value)].host; };
  const auto mine = roster.members.begin() + links->rank().value;
  const auto before = std::count_if(roster.members.begin(), mine, here), all = before + std::count_if(mine, roster.members.end(), here);
  return std::make_shared<World>(
      World{std::nullopt, std::move(links), nullptr, roster, static_cast<int>(before), static_cast<int>(all), settings.queue});
}

void Engine::open_sets(World& world, const EngineSettings& settings) {
  const std::vector<Rank> chosen = settings.ranks.empty() ? std::vector<Rank>{} : checked(settings.ranks, world.everyone().size());
  world.comm = chosen.empty() ? world.everyone().split(0) : world.everyone().subset(chosen);
  if (!world.comm) {
    const int rank = world.everyone().rank().value;
    std::lock_guard lock(mutex_);
    owner_ = getpid();
    bystander_ = std::make_shared<World>(std::move(world));
    throw_failure(Kind::usage, "init(comm=[{}]) leaves rank {} out; it has no part in this world", fmt::join(settings.ranks, ", "), rank);
  }
  const int size = world.comm->size();
  std::vector<std::vector<int>> sets{up_to(size)};
  for (const auto& ranks : settings.sets) {
    const bool of_more = attendance_ && std::any_of(ranks.begin(), ranks.end(), [&](int r) { return r >= size; });
    if (!of_more) sets.push_back(ranks);  // else it is there again when as many ranks are
  }
  for (const auto& ranks : sets) {  // one that is given twice is one
    if (!find_set(world, checked(ranks, size))) world.sets[world.next_set++] = open_set(world, ranks);
  }
}

// The queues go first, each when its peers have heard of it. The links stay until every rank has come here, but not for long: a rank that
// has all it needs must not be seen to leave by one that is still in the middle of the same operation. In trouble there is nothing to wait
// for; the queues stay, to tell it to whoever asks.
void Engine::part(World& world) {
  if (std::exchange(world.parted, true)) return;
  std::optional<Error> trouble;
  {
    std::lock_guard lock(mutex_);
    trouble = world.trouble;
  }
  try {
    if (trouble) {
      world.everyone().abort(*trouble);
    } else {
      close_queues(world);
      world.everyone().barrier({.name = "shutdown", .deadline = Deadline::in(kParting)});
    }
  } catch (const Failure& failure) {
    log_debug("shutdown without the others: {}", failure.what());
    trouble = failure.error();
  }
  if (attendance_) attendance_->step_out(trouble);
}

void Engine::close_queues(World& world) {
  std::map<int, std::shared_ptr<ProcessSet>> sets;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  sets.swap(world.sets);
}

void Engine::leave(const std::shared_ptr<World>& world) {
  if (!world) return;
  part(*world);
  close_queues(*world);
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
    leave(world);
    world.reset();
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
int Engine::local_rank() const { return world()->local_rank; }
int Engine::local_size() const { return world()->local_size; }

std::vector<std::string> Engine::hosts() const {
  std::vector<std::string> hosts;
  for (const auto& member : world()->roster.members) hosts.push_back(member.host);
  return hosts;
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
  try {
    const auto handle = where->queue->submit(std::move(request.operation));
    return remember({where, handle, std::move(request.flight)});
  } catch (const Failure& failure) {
    lose(*where, failure);
  }
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
  queue::Result result;
  try {
    result = entry->set->queue->wait(entry->handle);
  } catch (const Failure& failure) {
    lose(*entry->set, failure);
  }
  if (entry->joins) {
    std::lock_guard lock(mutex_);
    ++entry->set->joins;
    entry->set->unnamed.clear();
    return Landing{{}, {}, result.last_joined.value};
  }
  return Landing{std::move(entry->flight->outputs), rows_of(result, *entry->flight), -1};
}

// What ended an epoch is told when it is left. Only the set of all ranks calls them as the coordinator does.
void Engine::note(const ProcessSet& set, const Failure& failure) const {
  Error error = failure.error();
  std::lock_guard lock(mutex_);
  if (!world_ || !world_->links || world_->trouble || !ends_epoch(error)) return;
  if (static_cast<int>(set.ranks.size()) != world_->comm->size()) error.rank = kNoRank;
  world_->trouble = std::move(error);
}

void Engine::lose(const ProcessSet& set, const Failure& failure) const {
  note(set, failure);
  Error error = failure.error();
  if (ends_epoch(error) && lost_alone())
    error.what += "; the job is elastic, and goes on with other ranks in a function with @hvd.elastic.run, where this program is not";
  throw Failure{error};
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
