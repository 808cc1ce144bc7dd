// What a worker does that leaves an elastic job, so that its state stays: it transfers its shards, or saves.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/log.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/train/loop/elastic_session.h"

namespace cohort::train {

// After the last step of an epoch that ends as planned: each leaving rank sends the shards that it alone has to one that stays.
void ElasticTrainer::transfer_before_leaving() {
  if (session_->loop->engine().has_own_state()) {
    handed_over_ = engine::capture_residuals(session_->loop->engine(), session_->comm->size());
    engine::hand_over_residuals(*session_->comm, *handed_over_, job_->elastic_worker().leaving());
  }
  if (!sharded_) return;
  status_.set_phase("transferring shards");
  session_->checkpoints->finish(&job_->elastic_worker().sealed());  // of a save in flight this rank's part is written
  auto& comm = *session_->comm;
  std::int32_t mine = job_->elastic_worker().leaving() ? 1 : 0;
  std::vector<std::int32_t> leaving(static_cast<std::size_t>(comm.size()));
  comm.all_gather(collective::piece(std::span(&mine, 1)), collective::piece(std::span(leaving)), {.name = "which ranks leave"});
  const auto leavers = std::ranges::count(leaving, 1);
  if (leavers == 0) return;
  if (leavers == comm.size()) return save_before_all_leave();
  Shards shards = collect_shards(session_->loop->engine());
  transfer_shards(comm, shards, *session_->loop, leaving);
  std::ranges::copy_if(shards, std::back_inserter(received_), [](const Shard& s) { return s.source == ShardSource::transferred; });
  comm.barrier({.name = "all shards are transferred"});
  if (mine != 0) job_->elastic_worker().state_transferred(successor_of(comm.rank(), leaving));
}

// No rank stays, and none has all of the state. What cannot be saved is lost.
void ElasticTrainer::save_before_all_leave() {
  CheckpointManager& checkpoints = *session_->checkpoints;
  const bool saved = checkpoints.save_last(&job_->elastic_worker().sealed());
  if (saved) session_->logger->say(fmt::format("saved update {} in {}", session_->loop->step(), checkpoints.folder()));
  checkpoints.job_ends();
  on_disk_ = true;
  lost_ = !saved;
  if (lost_) why_lost_ = checkpoints.lost_text();
  job_->elastic_worker().state_transferred(kNoRank);
}

// The last worker with the state leaves: a run of one rank that saves and makes no step. Without a coordinator it is one of several, which
// have saved together unless their last step failed.
void ElasticTrainer::save_as_last_worker(bool prepared_counts) {
  if (on_disk_) return;
  status_.set_phase("saving as the last worker");
  finish_pending_step(prepared_counts);
  session_.reset();
  std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
  session_ = std::make_unique<Session>();
  session_->comm = collective::open(std::move(alone), {});
  if (sharded_) rebuild_model();
  session_->loop = std::make_unique<TrainLoop>(*session_->comm, config_, 1, 1, status_, model_and_data_);
  TrainLoop& loop = *session_->loop;
  lost_ = sharded_ && !has_all(elastic_state_.shards, loop);
  if (lost_) return;
  sharded_ ? void(redistribute(*session_->comm, elastic_state_.shards, loop)) : restore_state(elastic_state_);
  loop.scale().restore(elastic_state_.scale, loop.scale().spec());
  loop.start_at(elastic_state_.progress.epoch, elastic_state_.progress.taken, elastic_state_.step);
  loop.set_optimizer_start(elastic_state_.optimizer_start);
  CheckpointManager checkpoints(*session_->comm, loop, resuming_config(), config_text_, fence_);
  checkpoints.job_ends();  // unless somebody comes, who takes the folder as a new job does
  lost_ = !checkpoints.save_last();
  if (lost_) return void(why_lost_ = checkpoints.lost_text());
  job_->elastic_worker().state_transferred(kNoRank);
  fmt::print("saved update {} in {}\n", elastic_state_.step, checkpoints.folder());
}

}  // namespace cohort::train
