// The HorovodRuntime is this process's membership in a job as hvd's users see it: made by init(), ended by shutdown(), any number of times.
//
//   world        the job; ranks and sizes are its
//   process sets number 0 is all ranks; each has its own communicator and its own negotiated queue, so sets never wait for each other
//   handles      numbers of operations in flight; they end with take(), or with shutdown(), which is harmless
//   elastic      where ranks come and go (elastic_session.h) a world is one epoch: after leave_epoch() it only has its rank and size, until
//                shutdown() and init() make the next
//
// Owner: the module, one for the process (a forked child has none). Threads: any; nothing here needs the GIL.
// Failure: Kind::usage for wrong use, also before init(); else what the queue throws.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/job/job.h"
#include "cohort/python/hvd/elastic_session.h"
#include "cohort/python/hvd/request.h"
#include "cohort/python/hvd/timeline.h"
#include "cohort/queue/queue.h"

namespace cohort::python {

using HandleId = std::int64_t;

struct InitOptions {
  std::vector<int> ranks{};              // the world is these ranks of the job; empty: all
  std::vector<std::vector<int>> sets{};  // process sets from the start, numbered from 1
  queue::QueueOptions queue{};
};

// One process set. Constant after construction but for the counters that name unnamed operations, which the runtime's mutex guards.
struct ProcessSet {
  std::vector<Rank> ranks;              // by their number in the world
  Rank mine = kNoRank;                  // this rank's number in the set
  std::unique_ptr<queue::Queue> queue;  // none where this rank is not a member
  std::map<queue::Collective, std::uint64_t> unnamed{};
  std::uint64_t joins = 0;
};

// What take() returns.
struct OperationResult {
  Tensors tensors;
  std::vector<std::vector<std::int64_t>> rows;  // per tensor: rows that came from each rank (gathering operations)
  int last_joined = -1;
};

class HorovodRuntime {
 public:
  HorovodRuntime();
  ~HorovodRuntime();
  HorovodRuntime(const HorovodRuntime&) = delete;
  HorovodRuntime& operator=(const HorovodRuntime&) = delete;

  bool init(const InitOptions& settings);  // nothing to do when there is a world already. False: elastic, and its epoch is over already
  void shutdown();
  bool initialized() const;
  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  std::vector<std::string> hosts() const;  // by rank

  int add_set(const std::vector<int>& ranks);  // on every rank, alike
  bool remove_set(int id);                     // on every rank, alike; false: there is no such set
  std::map<int, std::vector<int>> sets() const;
  std::unique_ptr<collective::Communicator> split_all();  // all ranks of the world, on connections of their own. On every rank, alike
  std::shared_ptr<ProcessSet> member(int set, std::string_view collective) const;  // Kind::usage where this rank is not in it

  // `name` is what the user calls it; empty: the n-th of its collective on this set.
  HandleId submit(int set, Request request, const std::string& name);
  HandleId join();
  bool poll(HandleId id) const;
  bool known(HandleId id) const { return find(id).has_value(); }
  // Makes progress on it until it is done or `return_by`: whether there is nothing more to wait for.
  bool help(HandleId id, Deadline return_by) const;
  std::uint64_t shutdowns() const { return shutdowns_.load(); }  // how many there were: handles from before are gone
  std::optional<OperationResult> take(HandleId id);              // ends the handle; nothing when there is none of this number

  // ---- elastic jobs
  enum class Next { fixed, later, epoch, released, over };  // fixed: the job is not elastic. later: no answer until `return_by`
  Next next_epoch(Deadline return_by);                      // reports first that this worker has left the one before
  void leave_epoch();                                       // with the others where all come here, else at once
  bool elastic() const;                                     // workers still come and go
  bool between_epochs() const;                              // .. and this one is in no epoch now
  bool commit_counts() const;                               // after next_epoch(): the commit that was in progress counts
  void state_synced();                                      // this rank has received the state
  HandleId vote(bool wish, const std::string& what);        // gathers which ranks want a change. A "commit" is prepared; decide() follows
  void decide();
  void end_job();               // all ranks are done, and know it; the world stays
  void end_at_exit(bool well);  // the process ends after shutdown(); well: the same, if all others have shut down, too
  void ask_to_leave(const std::string& why);
  void set_elastic_run(bool on) { in_elastic_run_ = on; }  // hvd.elastic.run recovers after what ends an epoch
  bool outside_elastic_run() const { return elastic() && !in_elastic_run_; }

  void start_timeline(const std::string& path, bool mark_cycles);  // on rank 0; the others have nothing to do
  void stop_timeline();

 private:
  struct World;
  struct Entry {
    std::shared_ptr<ProcessSet> set;
    queue::Handle handle;
    std::shared_ptr<PendingTensors> pending;
    bool joins = false;
  };
  std::shared_ptr<World> world() const;
  void leave(const std::shared_ptr<World>& world);
  void disconnect(World& world);
  void close_queues(World& world);
  std::shared_ptr<World> open_world(const InitOptions& settings);
  void open_sets(World& world, const InitOptions& settings);
  void note_failure(const ProcessSet& set, const Failure& failure) const;
  [[noreturn]] void fail_operation(const ProcessSet& set,
                                   const Failure& failure) const;  // an operation: notes it, and adds what would recover
  ElasticSession& session() const;
  std::optional<Entry> find(HandleId id) const;
  HandleId remember(Entry entry);
  static std::optional<int> find_set(const World& world, const std::vector<Rank>& ranks);
  std::shared_ptr<ProcessSet> open_set(World& world, const std::vector<int>& ranks) const;

  mutable Timeline timeline_;
  mutable std::mutex mutex_;
  std::mutex sets_mutex_;  // one change of the sets at a time; taken before mutex_

  // ---- guarded by mutex_
  std::shared_ptr<World> world_;
  std::shared_ptr<World> excluded_world_;  // this rank's links while it is excluded from a world of some ranks
  std::unordered_map<HandleId, Entry> entries_;
  HandleId next_ = 0;
  pid_t owner_ = 0;

  // ---- made once, by the first next_epoch(); one thread at a time
  std::unique_ptr<ElasticSession> session_;
  pid_t session_pid_ = 0;
  std::atomic<bool> in_elastic_run_{false};
  std::atomic<std::uint64_t> shutdowns_{0};
};

// The one of this process.
HorovodRuntime& runtime();

}  // namespace cohort::python
