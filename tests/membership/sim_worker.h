// A worker's process in the simulation: joins, trains a toy, votes, obeys. Its training: exchange gradients with all, prepare, exchange
// votes with all, apply. Parameters are a hash over everything they were trained on.
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

  // --- orders of the coordinator
  void on(const group::Seal& seal);
  void on(const group::Begin& begin);
  void evicted();
  void released(const group::Release& release);
  void exit(const char* why);

  // --- the nemesis
  void kill();
  void set_paused(bool paused) { paused_ = paused; }
  void leave();  // notice of preemption
  void cut();    // its connection to the coordinator breaks

  void hung_up();  // its connection has ended
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  int host() const { return host_; }
  std::string address() const { return fmt::format("w{}", number_); }
  bool lives_as(group::WorkerId id) const { return alive_ && id_ == id; }
  // Whether the epoch before this one left its state here, beyond this step.
  bool holds_later_than(Epoch epoch, std::int64_t step) const {
    return alive_ && state_ && ballot_.epoch().value + 1 == epoch.value && state_->step > step;
  }
  // After a delay, by this process: not before it is resumed, and never when it has died meanwhile.
  void after(double delay, std::function<void()> what);

 private:
  // A collective of an epoch: every member sends to every member; done here when all have come.
  enum class Round : int { hello, gradients, votes, goodbye };
  using Place = std::pair<std::int64_t, Round>;

  void connect();
  void arrive();
  void heartbeat();
  void to_coordinator(group::ElasticEvent event);
  void report();
  void have_state(State state);
  void ask_for_state();
  void give_state(SimWorker& asker, Epoch epoch, int asks);
  void take_state(const State& state, Epoch epoch);
  void enter(Round round, bool wish = false);
  void receive(Epoch epoch, Place place, int from, bool wish);
  void advance();
  void begin_step();
  void prepare();
  void decide();
  void apply();
  void collective_failed();
  void peer_died(Epoch epoch, int rank);
  State trained() const;
  HistoryLine line(HistoryLine::Event event, Epoch epoch, const State& state) const;
  data::Onward share() const;

  Simulation& world_;
  const int host_, number_;
  group::WorkerId id_;
  bool alive_ = true, paused_ = false, leaving_ = false, done_ = false;
  bool goes_ = false;  // it was let go and saves, or is about to end
  std::shared_ptr<Connection> connection_;
  double alone_since_ = 0;
  std::uint64_t connects_ = 0;

  group::Ballot ballot_;
  std::optional<State> state_;  // parameters
  std::optional<State> next_;   // once prepared: what they become
  std::optional<HistoryLine> next_line_;
  group::Roster roster_;
  Rank rank_;
  Rank heal_from_;
  std::optional<Place> waiting_;  // the round that is under way
  bool pause_wish_ = false, told_settled_ = false, wish_heard_ = false;
  std::map<Place, std::map<int, bool>> came_;  // of this epoch: who, with which wish
};

}  // namespace cohort::membership
