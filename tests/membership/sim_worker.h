// A worker's process in the simulation, with a minimal training loop: exchange gradients with all, prepare, exchange votes with all, apply.
// Parameters are a hash over everything they were trained on.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "simulation.h"

namespace cohort::membership {

class SimWorker {
 public:
  SimWorker(Simulation& world, int host, int number) : world_(world), host_(host), number_(number) {}
  void start();

  // --- actions of the coordinator
  void on(const elastic::SealEpoch& seal);
  void on(const elastic::BeginEpoch& begin);
  void evicted();
  void released(const elastic::Release& release);
  void exit(const char* why);

  // --- the nemesis
  void kill();
  void set_paused(bool paused) { paused_ = paused; }
  void leave();  // notice of preemption
  void cut();    // its connection to the coordinator breaks

  void disconnected();  // its connection has ended
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  int host() const { return host_; }
  std::string address() const { return fmt::format("w{}", number_); }
  bool runs_as(elastic::WorkerId id) const { return alive_ && id_ == id; }
  // Whether it holds the state of the epoch before this one, after a later step.
  bool holds_later_than(Epoch epoch, std::int64_t step) const {
    return alive_ && state_ && step_commit_.epoch().value + 1 == epoch.value && state_->step > step;
  }
  // After a delay, by this process: not before it is resumed, and never when it has ended meanwhile.
  void after(double delay, std::function<void()> what);

 private:
  // A collective of an epoch: every member sends to every member; done here when all have arrived.
  enum class Round : int { first_barrier, gradients, votes, last_barrier };
  using RoundId = std::pair<std::int64_t, Round>;

  void connect();
  void arrive();
  void heartbeat();
  void to_coordinator(elastic::ElasticEvent event);
  void report();
  void have_state(State state);
  void ask_for_state();
  void give_state(SimWorker& asker, Epoch epoch, int asks);
  void take_state(const State& state, Epoch epoch);
  void enter(Round round, bool wants_change = false);
  void receive(Epoch epoch, RoundId round_id, int from, bool wants_change);
  void advance();
  void begin_step();
  void prepare();
  void decide();
  void apply();
  void collective_failed();
  void peer_died(Epoch epoch, int rank);
  State trained() const;
  HistoryLine line(HistoryLine::Event event, Epoch epoch, const State& state) const;
  data::RebalancedShare share() const;

  Simulation& world_;
  const int host_, number_;
  elastic::WorkerId id_;
  bool alive_ = true, paused_ = false, leaving_ = false, done_ = false;
  bool released_ = false;  // it saves, or is about to end
  std::shared_ptr<Connection> connection_;
  double alone_since_ = 0;
  std::uint64_t connects_ = 0;

  elastic::StepCommit step_commit_;
  std::optional<State> state_;  // parameters
  std::optional<State> next_;   // once prepared: what they become
  std::optional<HistoryLine> next_line_;
  group::Roster roster_;
  Rank rank_;
  Rank heal_from_;
  std::optional<RoundId> waiting_;  // the round that is under way
  bool change_wanted_ = false, settled_sent_ = false, change_agreed_ = false;
  std::map<RoundId, std::map<int, bool>> arrived_;  // of this epoch: from which rank, and whether it requests a change
};

}  // namespace cohort::membership
