// The coordinator's process in the simulation: Membership, a log whose last write a crash may tear, connections. One event at a time; what
// an event decided is carried out when the log is on disk.
#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/elastic/decision_log.h"
#include "simulation.h"

namespace cohort::membership {

class SimCoordinator {
 public:
  static constexpr int kHost = 0;

  explicit SimCoordinator(Simulation& world) : world_(world), disk_(elastic::log_header()) {}
  void start();
  void crash();  // a write under way may be torn anywhere
  bool alive() const { return membership_ != nullptr; }
  bool over() const { return over_; }
  const std::optional<Error>& error() const { return error_; }
  const elastic::CoordinatorState* coordinator_state() const { return membership_ ? &membership_->coordinator_state() : nullptr; }
  void set_paused(bool paused);

  std::shared_ptr<Connection> accept(SimWorker& worker);  // none: it is not running
  void receive(elastic::ElasticEvent event);
  void process_ended(elastic::WorkerId worker, std::string how);

 private:
  void adopt();
  void work();
  void commit(elastic::Decided decided);
  void act(const elastic::ElasticAction& action);
  void tick();
  void to_worker(group::ConnectionId connection_id, std::function<void(SimWorker&)> what);

  Simulation& world_;
  std::vector<std::byte> disk_;
  std::vector<std::byte> being_written_;
  std::uint32_t frames_ = 0;
  std::unique_ptr<elastic::Membership> membership_;
  std::map<group::ConnectionId, std::shared_ptr<Connection>> connections_;
  std::deque<elastic::ElasticEvent> inbox_;
  group::ConnectionId next_connection_id_ = 1;
  int generation_ = 0;  // timers of an earlier one are void
  bool busy_ = false, paused_ = false, over_ = false;
  std::optional<Error> error_;
};

}  // namespace cohort::membership
