// The coordinator's process in the simulation: Elastic, a log whose last write a crash may tear, connections. One event at a time; what an
// event decided is carried out when the log is on disk.
#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/group/decision_log.h"
#include "simulation.h"

namespace cohort::membership {

class SimCoordinator {
 public:
  static constexpr int kHost = 0;

  explicit SimCoordinator(Simulation& world) : world_(world), disk_(group::log_header()) {}
  void start();
  void crash();  // a write under way may be torn anywhere
  bool alive() const { return elastic_ != nullptr; }
  bool over() const { return over_; }
  const std::optional<Error>& error() const { return error_; }
  const group::Charter* charter() const { return elastic_ ? &elastic_->charter() : nullptr; }
  void set_paused(bool paused);

  std::shared_ptr<Connection> accept(SimWorker& worker);  // none: nobody listens
  void hear(group::ElasticEvent event);
  void process_ended(group::WorkerId worker, std::string how);

 private:
  void adopt();
  void work();
  void commit(group::Decided decided);
  void act(const group::ElasticAction& action);
  void tick();
  void to_worker(group::Guest guest, std::function<void(SimWorker&)> what);

  Simulation& world_;
  std::vector<std::byte> disk_;
  std::vector<std::byte> being_written_;
  std::uint32_t frames_ = 0;
  std::unique_ptr<group::Elastic> elastic_;
  std::map<group::Guest, std::shared_ptr<Connection>> connections_;
  std::deque<group::ElasticEvent> inbox_;
  group::Guest next_guest_ = 1;
  int life_ = 0;  // timers of an earlier one are void
  bool busy_ = false, paused_ = false, over_ = false;
  std::optional<Error> error_;
};

}  // namespace cohort::membership
