// An elastic job in virtual time: one coordinator (elastic::Membership behind a log that may be torn), workers (elastic::StepCommit and a
// minimal training loop) on hosts, a network that delays, blocks one way or both, and breaks, and a nemesis (as in Jepsen) that kills,
// pauses, partitions, restarts. Everything follows from the seed. What workers did is a history, checked by elastic::judge().
//
//   COHORT_SIM_SEED=123 bin/membership_test --gtest_filter=Simulation.ReplaysOneSeed     replays one schedule and prints its trace
//
// Messages on one connection keep their order; behind a partition they wait, as TCP segments do, until it heals or the connection times
// out. Owner: a test. Threads: one. Failure: run() returns what went wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/data/random.h"
#include "cohort/data/rebalance.h"
#include "cohort/elastic/history.h"
#include "cohort/elastic/membership.h"
#include "virtual_time.h"

namespace cohort::membership {

using data::Rng;
using elastic::HistoryLine;

struct Scenario {
  std::uint64_t seed = 0;
  int workers = 4, hosts = 4;
  elastic::ElasticRules rules;
  double faults_every = 1.5;  // seconds between faults, on average
  double faults_until = 12;
  std::int64_t last_step = 60;
  bool launcher_sees_exits = true;
  bool trace = false;  // print what happens
  // One weight per fault, in the order of sim_faults.cc: kill, pause, partition, coordinator, leave, join, cut a connection.
  std::vector<int> weights{4, 3, 3, 2, 1, 2, 2};
};

struct Outcome {
  std::string failure;  // empty: all promises kept and the job ended
  int faults = 0, epochs = 0, restarts_from_disk = 0;
  double ended_at = 0, longest_gap = 0;  // virtual seconds; between two commits
  std::uint64_t events = 0;
};

// The training state: parameters (their hash) and the position in the data.
struct State {
  std::int64_t step = 0;
  std::uint64_t hash = 1;
  data::Progress progress;
};

class SimWorker;
class SimCoordinator;

// Both ends of a connection between a worker and the coordinator. Each direction is a queue in order.
struct Connection {
  group::ConnectionId connection_id = 0;
  SimWorker* worker = nullptr;
  bool open = true;
  struct Direction {
    std::deque<std::function<void()>> queue;
    bool pumping = false;
    double stuck_since = -1;
  };
  Direction up, down;
};

class Simulation {
 public:
  explicit Simulation(Scenario scenario);
  ~Simulation();
  Outcome run();

  // --- for workers, coordinator and nemesis
  const Scenario& scenario() const { return scenario_; }
  VirtualTime& time() { return time_; }
  Rng& rng() { return rng_; }
  double delay() { return rng_.uniform() < 0.02 ? rng_.uniform(0.01, 0.15) : rng_.uniform(0.0002, 0.004); }
  bool chance(double p) { return rng_.uniform() < p; }
  bool blocked(int from_host, int to_host) const { return blocked_.contains({from_host, to_host}); }
  void log(const std::string& what);
  void write(HistoryLine line);
  void fail(const std::string& why);

  SimCoordinator& coordinator() { return *coordinator_; }
  std::vector<std::unique_ptr<SimWorker>>& workers() { return workers_; }
  SimWorker* worker_at(const std::string& address) const;
  SimWorker& spawn(int host);
  int alive() const;

  void send(const std::shared_ptr<Connection>& c, bool up, std::function<void()> what);
  void close(const std::shared_ptr<Connection>& c);  // the other side learns of it when the network delivers it
  // A message between workers: after a delay, behind partitions later, to the process that runs then.
  void post(SimWorker& from, SimWorker& to, std::function<void()> what);

  // A store of checkpoints that remembers the latest epoch it has seen and refuses earlier ones.
  struct Store {
    std::uint32_t fence = 0;
    State newest;
  } store;

  // --- sim_faults.cc
  void next_fault();
  void heal_everything();

 private:
  void pump(const std::shared_ptr<Connection>& c, bool up);
  void deliver(SimWorker& from, SimWorker& to, std::function<void()> what, int tries);
  void supervise();
  bool state_is_unknowable() const;
  std::string check();

  Scenario scenario_;
  Rng rng_;
  VirtualTime time_;
  std::unique_ptr<SimCoordinator> coordinator_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::set<std::pair<int, int>> blocked_;  // from host, to host
  std::vector<HistoryLine> history_;
  Outcome outcome_;
  bool faults_over_ = false;
  double last_commit_ = 0;
};

}  // namespace cohort::membership
