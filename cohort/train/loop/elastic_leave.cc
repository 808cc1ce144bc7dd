// What those do who leave an elastic job, so that what they learned stays: they hand over, or save.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/log.h"
#include "cohort/net/loopback.h"
#include "cohort/train/loop/elastic_session.h"

namespace cohort {

// After the last step of an epoch that ends as planned: whoever leaves gives what only he has to one who stays.
void ElasticTrainer::leave_shards() {
  if (!sharded_) return;
  where_.doing("handing over");
  session_->keeper->finish(&job_->seat().sealed());  // of a save in flight this rank's part is written
  auto& comm = *session_->comm;
  std::int32_t mine = job_->seat().leaving() ? 1 : 0;
  std::vector<std::int32_t> leaving(static_cast<std::size_t>(comm.size()));
  comm.all_gather(collective::piece(std::span(&mine, 1)), collective::piece(std::span(leaving)), {.name = "who leaves"});
  const auto leavers = std::ranges::count(leaving, 1);
  if (leavers == 0) return;
  if (leavers == comm.size()) return save_together();
  Shards shards = take_shards(session_->learner->engine());
  hand_over(comm, shards, *session_->learner, leaving);
  std::ranges::copy_if(shards, std::back_inserter(received_), [](const Shard& s) { return s.source == ShardSource::handed; });
  comm.barrier({.name = "all is handed over"});
  if (mine != 0) job_->seat().entrusted(heir_of(comm.rank(), leaving));
}

// Nobody stays, and nobody has all of it. What cannot be saved is lost: there is nobody to wait for.
void ElasticTrainer::save_together() {
  Keeper& keeper = *session_->keeper;
  keeper.save();
  keeper.finish(&job_->seat().sealed());
  std::int32_t saved = keeper.saved() ? 1 : 0;
  session_->comm->all_reduce(collective::piece(std::span(&saved, 1)), collective::Op::min, {.name = "is it saved"});
  if (saved != 0) session_->chronicle->say(fmt::format("saved update {} in {}", session_->learner->step(), keeper.folder()));
  on_disk_ = true;
  lost_ = saved == 0;
  job_->seat().entrusted(kNoRank);
}

// The last one that has the state leaves: a run of one rank that saves and makes no step. Without a coordinator it is one of several, who
// have saved together unless their last step failed.
void ElasticTrainer::save_alone(bool prepared_counts) {
  if (on_disk_) return;
  where_.doing("saving what nobody else has");
  end_step_alone(prepared_counts);
  session_.reset();
  std::shared_ptr<net::Mesh> alone = std::move(net::loopback_meshes(1).front());
  session_ = std::make_unique<Session>();
  session_->comm = collective::open(std::move(alone), {});
  if (sharded_) renew_model();
  session_->learner = std::make_unique<Learner>(*session_->comm, config_, 1, 1, where_, materials_);
  Learner& learner = *session_->learner;
  lost_ = sharded_ && !has_all(carried_.shards, learner);
  if (lost_) return;
  sharded_ ? void(lay_out(*session_->comm, carried_.shards, learner)) : adopt(carried_);
  learner.scale().restore(carried_.scale, learner.scale().spec());
  learner.start_at(carried_.progress.epoch, carried_.progress.taken, carried_.step);
  Keeper keeper(*session_->comm, learner, resuming(), config_text_, fence_);
  keeper.save();
  keeper.finish();
  lost_ = !keeper.saved();
  if (lost_) return;
  job_->seat().entrusted(kNoRank);
  fmt::print("saved update {} in {}\n", carried_.step, keeper.folder());
}

}  // namespace cohort
