#include "cohort/python/hvd/runtime.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/python/hvd/runtime_world.h"
#include "cohort/queue/signature.h"

namespace cohort::python {
namespace {

constexpr Seconds kShutdownBarrier{5};  // how long a rank that shuts down waits for the others to do so

std::vector<int> up_to(int size) {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  return all;
}

std::vector<std::vector<std::int64_t>> rows_of(const queue::Result& result, const PendingTensors& pending) {
  std::vector<std::vector<std::int64_t>> rows;
  for (std::size_t part = 0; part < result.counts.size() && part < pending.rows.size(); ++part) {
    auto& each = rows.emplace_back();
    for (const std::size_t count : result.counts[part]) {
      each.push_back(static_cast<std::int64_t>(count) / std::max<std::int64_t>(1, pending.rows[part]));
    }
  }
  return rows;
}

}  // namespace

HorovodRuntime::HorovodRuntime() = default;
HorovodRuntime::~HorovodRuntime() = default;

bool HorovodRuntime::init(const InitOptions& settings) {
  std::lock_guard one(sets_mutex_);
  if (initialized()) return true;
  leave(std::exchange(excluded_world_, nullptr));
  const auto world = open_world(settings);
  if (!world) return false;
  try {
    open_sets(*world, settings);
  } catch (const Failure& failure) {
    if (!session_) throw;
    world->error = failure.error();
    leave(world);
    if (!job::ends_epoch(failure.error())) throw;
    return false;
  } catch (...) {  // the session must not abort links that are gone
    if (session_) session_->leave_epoch(Error{Kind::system, "the process sets could not be opened", kNoRank});
    throw;
  }
  std::lock_guard lock(mutex_);
  world_ = world;
  owner_ = getpid();
  return true;
}

std::shared_ptr<HorovodRuntime::World> HorovodRuntime::open_world(const InitOptions& settings) {
  if (!session_) {
    Job job = cohort::init();
    const int local_rank = job.local_rank(), local_size = job.local_size();
    group::Roster roster = job.roster();
    return std::make_shared<World>(World{std::move(job), nullptr, nullptr, std::move(roster), local_rank, local_size, settings.queue});
  }
  if (!settings.ranks.empty()) throw_failure(Kind::usage, "init(comm=...) chooses among ranks, and those of an elastic job change");
  auto links = session().connect();
  if (!links) return nullptr;
  const group::Roster& roster = session_->epoch().roster;
  const auto here = [&](const group::Member& m) { return m.host == roster.members[static_cast<std::size_t>(links->rank().value)].host; };
  const auto mine = roster.members.begin() + links->rank().value;
  const auto before = std::count_if(roster.members.begin(), mine, here), all = before + std::count_if(mine, roster.members.end(), here);
  return std::make_shared<World>(
      World{std::nullopt, std::move(links), nullptr, roster, static_cast<int>(before), static_cast<int>(all), settings.queue});
}

void HorovodRuntime::open_sets(World& world, const InitOptions& settings) {
  const std::vector<Rank> chosen = settings.ranks.empty() ? std::vector<Rank>{} : checked(settings.ranks, world.all_ranks().size());
  world.comm = chosen.empty() ? world.all_ranks().split(0) : world.all_ranks().subset(chosen);
  if (!world.comm) {
    const int rank = world.all_ranks().rank().value;
    std::lock_guard lock(mutex_);
    owner_ = getpid();
    excluded_world_ = std::make_shared<World>(std::move(world));
    throw_failure(Kind::usage, "init(comm=[{}]) leaves rank {} out; it is not a member of this world", fmt::join(settings.ranks, ", "),
                  rank);
  }
  const int size = world.comm->size();
  std::vector<std::vector<int>> sets{up_to(size)};
  for (const auto& ranks : settings.sets) {
    const bool of_more = session_ && std::any_of(ranks.begin(), ranks.end(), [&](int r) { return r >= size; });
    if (!of_more) sets.push_back(ranks);  // else it is opened again when there are as many ranks
  }
  for (const auto& ranks : sets) {  // a set that is given twice is opened once
    if (!find_set(world, checked(ranks, size))) world.sets[world.next_set++] = open_set(world, ranks);
  }
}

// The queues close first, each with a message to its peers. The links stay until every rank has come here, but not for long: a rank that
// has all it needs must not leave while another is still in the middle of the same operation. After a failure there is nothing to wait
// for; the queues stay, so that callers get that failure.
void HorovodRuntime::disconnect(World& world) {
  if (std::exchange(world.departed, true)) return;
  std::optional<Error> cause;
  {
    std::lock_guard lock(mutex_);
    cause = world.error;
  }
  try {
    if (cause) {
      world.all_ranks().abort(*cause);
    } else {
      close_queues(world);
      world.all_ranks().barrier({.name = "shutdown", .deadline = Deadline::in(kShutdownBarrier)});
    }
  } catch (const Failure& failure) {
    log_debug("shutdown without the others: {}", failure.what());
    cause = failure.error();
  }
  if (session_) session_->leave_epoch(cause);
}

void HorovodRuntime::close_queues(World& world) {
  std::map<int, std::shared_ptr<ProcessSet>> sets;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  sets.swap(world.sets);
}

void HorovodRuntime::leave(const std::shared_ptr<World>& world) {
  if (!world) return;
  disconnect(*world);
  close_queues(*world);
}

void HorovodRuntime::shutdown() {
  std::lock_guard one(sets_mutex_);
  std::shared_ptr<World> world;
  std::unordered_map<HandleId, Entry> entries;
  bool ours = false;
  {
    std::lock_guard lock(mutex_);
    world.swap(world_);
    entries.swap(entries_);
    ++shutdowns_;
    ours = owner_ == getpid();
  }
  if (ours) {
    entries.clear();  // what is not waited for any more
    leave(std::exchange(excluded_world_, nullptr));
    leave(world);
    world.reset();
    return timeline_.stop();
  }
  // A forked child has the parent's memory but none of its threads: no thread could close anything, and nothing is its own.
  static auto* const abandoned = new std::vector<std::shared_ptr<void>>;
  abandoned->push_back(std::move(world));
  for (auto& [id, entry] : entries) abandoned->push_back(std::make_shared<Entry>(std::move(entry)));
}

std::shared_ptr<HorovodRuntime::World> HorovodRuntime::world() const {
  std::lock_guard lock(mutex_);
  if (world_ && owner_ == getpid()) return world_;
  if (world_) throw_failure(Kind::usage, "this process was forked from rank {}; only that process is a rank", world_->comm->rank().value);
  throw_failure(Kind::usage, "Horovod has not been initialized; use hvd.init().");
}

bool HorovodRuntime::initialized() const {
  std::lock_guard lock(mutex_);
  return world_ && owner_ == getpid();
}

int HorovodRuntime::rank() const { return world()->comm->rank().value; }
int HorovodRuntime::size() const { return world()->comm->size(); }
int HorovodRuntime::local_rank() const { return world()->local_rank; }
int HorovodRuntime::local_size() const { return world()->local_size; }

std::vector<std::string> HorovodRuntime::hosts() const {
  std::vector<std::string> hosts;
  for (const auto& member : world()->roster.members) hosts.push_back(member.host);
  return hosts;
}

// ---- operations

HandleId HorovodRuntime::submit(int set, Request request, const std::string& name) {
  const std::string_view collective = queue::horovod_name(request.operation.collective);
  const auto where = member(set, collective);
  if (request.operation.collective == queue::Collective::broadcast) {
    const auto at = std::find(where->ranks.begin(), where->ranks.end(), request.operation.root);
    if (at == where->ranks.end()) {
      throw_failure(Kind::usage, "broadcast '{}': root rank {} is not in the process set of ranks [{}]", name, request.operation.root.value,
                    fmt::join(numbers(where->ranks), ", "));
    }
    request.operation.root = Rank{static_cast<int>(at - where->ranks.begin())};
  }
  request.operation.name = fmt::format("{} {}", collective, name);
  queue::check(request.operation, where->mine, where->queue->size());  // what is refused here does not count as unnamed
  if (name.empty()) {  // counted anew after each join: ranks that submitted less than others are in step again there
    std::lock_guard lock(mutex_);
    request.operation.name = fmt::format("{}.noname.{}.{}", collective, where->joins, where->unnamed[request.operation.collective]++);
  } else {
    request.operation.name = fmt::format("{}.{}", collective, name);
  }
  request.hold.reset();  // the operation's alone from here on
  try {
    const auto handle = where->queue->submit(std::move(request.operation));
    return remember({where, handle, std::move(request.pending)});
  } catch (const Failure& failure) {
    fail_operation(*where, failure);
  }
}

HandleId HorovodRuntime::join() {
  const auto all_ranks = member(0, "join");
  return remember({all_ranks, all_ranks->queue->join(), std::make_shared<PendingTensors>(), true});
}

HandleId HorovodRuntime::remember(Entry entry) {
  std::lock_guard lock(mutex_);
  entries_.emplace(next_, std::move(entry));
  return next_++;
}

std::optional<HorovodRuntime::Entry> HorovodRuntime::find(HandleId id) const {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? std::nullopt : std::optional(at->second);
}

bool HorovodRuntime::poll(HandleId id) const {
  const auto entry = find(id);
  if (!entry) throw_failure(Kind::usage, "handle {} belongs to no operation: it was synchronized already, or never returned", id);
  return entry->set->queue->poll(entry->handle);
}

bool HorovodRuntime::help(HandleId id, Deadline return_by) const {
  const auto entry = find(id);
  return !entry || entry->set->queue->help(entry->handle, return_by);
}

std::optional<OperationResult> HorovodRuntime::take(HandleId id) {
  std::optional<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return std::nullopt;
    entry = std::move(at->second);
    entries_.erase(at);
  }
  entry->pending->restore_shapes();
  queue::Result result;
  try {
    result = entry->set->queue->wait(entry->handle);
  } catch (const Failure& failure) {
    fail_operation(*entry->set, failure);
  }
  if (entry->joins) {
    std::lock_guard lock(mutex_);
    ++entry->set->joins;
    entry->set->unnamed.clear();
    return OperationResult{{}, {}, result.last_joined.value};
  }
  return OperationResult{std::move(entry->pending->outputs), rows_of(result, *entry->pending), -1};
}

// What ended an epoch is reported when it is left. Only the set of all ranks numbers them as the coordinator does.
void HorovodRuntime::note_failure(const ProcessSet& set, const Failure& failure) const {
  Error error = failure.error();
  std::lock_guard lock(mutex_);
  if (!world_ || !world_->links || world_->error || !job::ends_epoch(error)) return;
  if (static_cast<int>(set.ranks.size()) != world_->comm->size()) error.rank = kNoRank;
  world_->error = std::move(error);
}

void HorovodRuntime::fail_operation(const ProcessSet& set, const Failure& failure) const {
  note_failure(set, failure);
  Error error = failure.error();
  if (job::ends_epoch(error) && outside_elastic_run())
    error.what += "; the job is elastic, and goes on with other ranks in a function with @hvd.elastic.run, which this program is not in";
  throw Failure{error};
}

void HorovodRuntime::start_timeline(const std::string& path, bool mark_cycles) {
  if (rank() == 0) timeline_.start(path, mark_cycles);
}

void HorovodRuntime::stop_timeline() {
  world();
  timeline_.stop();
}

HorovodRuntime& runtime() {
  static auto* const one = new HorovodRuntime;  // never destroyed: threads of a process that ends without shutdown() may still run
  return *one;
}

}  // namespace cohort::python
