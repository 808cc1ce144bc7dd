// A Table says what counts of what workers push to a Store, when, and who may read it: the consistency of a parameter server, as a state
// machine without threads or messages.
//   push(stamp)        fresh: what comes with it may be staged. Once staged it does not count yet
//   mark(stamp, ..)    ends the worker's clock: what it has staged counts, or does not (Update::go). Where the gate is ordered it is
//                      applied when all have marked the clock, together; elsewhere at once
//   opens(w, c), read(w)   a worker at clock c may read when the gate opens and its own marks are here
// The first one that comes says at which clock all workers begin, and how many updates the rule's state has behind it: 0, or where a
// resumed run goes on. The two differ where a run resumes without the state: the rule counts from 1 again then.
// Every push and mark carries a Stamp. A worker numbers them, 1, 2, 3 ..: one that was seen is `repeated` and not looked at, one that
// overtook others is `early` and has to come again; so each counts exactly once, whatever a network drops, doubles or reorders.
// Staleness of an update: updates applied between the read that it was computed from and its own turn. Of a read: clocks it lies behind.
// Owner: Server. Threads: one. Failure: Kind::usage for what no worker of this code does; nothing has changed then.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/ps/clock.h"
#include "cohort/ps/gate.h"
#include "cohort/ps/store.h"

namespace cohort::ps {

struct Stamp {
  int worker = 0;
  std::int64_t clock = 0;  // that is under way: its worker has ended so many
  std::uint64_t seq = 0;
  std::optional<std::int64_t> updates{};  // of each worker before the table's first clock; none: as many as clocks
};

enum class Admission : std::uint8_t { fresh, repeated, early };

struct Read {
  std::int64_t low = 0;      // every update stamped before it is in
  std::int64_t version = 0;  // updates applied
};

using Histogram = std::map<std::int64_t, std::int64_t>;  // how often each value came
double mean_of(const Histogram& histogram);

class Table {
 public:
  // average: the updates of one clock count as their mean over the workers, not their sum.
  Table(Gate gate, int workers, std::unique_ptr<Store> store, bool average = true);

  // What this worker has marked waits for the others to be applied: its next push has to wait, too. Only where the gate is ordered.
  bool held(int worker) const { return held_[static_cast<std::size_t>(worker)].has_value(); }
  Admission push(const Stamp& stamp);
  Admission mark(const Stamp& stamp, Update update);
  // slack: of this read in place of the gate's.
  bool opens(int worker, std::int64_t clock, std::optional<std::int64_t> slack = {}) const;
  Read read(int worker);

  void join(int worker);   // begins at low()
  void leave(int worker);  // what it has marked counts, what it has only pushed does not

  const Gate& gate() const { return gate_; }
  const Clock& clock() const { return clock_; }
  std::int64_t version() const { return version_; }
  Store& store() { return *store_; }
  const Histogram& staleness() const { return staleness_; }  // of updates
  const Histogram& lag() const { return lag_; }              // of reads

 private:
  Admission admit(const Stamp& stamp);
  void begin_at(const Stamp& stamp);
  void apply(std::span<const Contribution> together);
  void apply_complete();
  std::size_t index(int worker) const { return static_cast<std::size_t>(worker); }

  const Gate gate_;
  const bool average_;
  const std::unique_ptr<Store> store_;
  Clock clock_;
  std::vector<std::uint64_t> seen_;          // by worker: seq of the last push or mark
  std::vector<std::optional<Update>> held_;  // by worker: marked, not applied
  std::vector<std::int64_t> read_at_;        // by worker: version of its last read
  std::int64_t version_ = 0;
  std::int64_t applied_ = 0;  // ordered: clocks
  std::int64_t first_ = 0;    // updates before version 0
  bool begun_ = false;        // something was pushed or marked
  Histogram staleness_, lag_;
};

}  // namespace cohort::ps
