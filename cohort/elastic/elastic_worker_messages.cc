// What an ElasticWorker does with each message of its coordinator. Every function holds the mutex.
#include <utility>

#include "cohort/base/log.h"
#include "cohort/elastic/elastic_worker_impl.h"

namespace cohort::elastic {

void ElasticWorker::Impl::receive(const ElasticAction& message) {
  std::visit([this](const auto& o) { on(o); }, message);
  changed.notify_all();
}

void ElasticWorker::Impl::on(const SealEpoch& seal) {
  const auto* begin = pending ? std::get_if<BeginEpoch>(&*pending) : nullptr;
  if (begin != nullptr && begin->roster.epoch == seal.epoch) return void(pending_sealed = true);
  if (!step_commit.accepts(seal.term, seal.epoch) || seal.epoch != step_commit.epoch() || ended_at) return;
  if (!seal.urgent && trains()) return void(change_wanted = true);
  end_epoch({Kind::aborted, fmt::format("membership epoch {} is over: its roster changes", seal.epoch.value), kNoRank});
  step_commit.seal();
  if (!entering) report();
}

void ElasticWorker::Impl::on(const BeginEpoch& begin) {
  if (begin.roster.epoch <= step_commit.epoch() || begin.term < step_commit.term()) return;
  pending = begin;
  pending_sealed = false;
}

// The job continues without it: its state no longer counts.
void ElasticWorker::Impl::on(const Evict& evict) {
  end_epoch(evict.error);
  log_warning("{}", evict.error.what);
  step_commit = StepCommit{};
  pending.reset();
  id = new_worker_id();
  evicted = true;
  ended_at.reset();
  disconnect();
}

void ElasticWorker::Impl::on(const group::Refuse& refuse) {
  if (refuse.error.kind != Kind::timeout) return finish({refuse.error});
  on(Evict{0, refuse.error});  // it was silent for too long, before it was a member
}

void ElasticWorker::Impl::on(const Stop& message) { finish({message.error}); }

void ElasticWorker::Impl::on(const Say& line) { log_debug("{}", line.text); }  // the launcher logs it once for all

void ElasticWorker::Impl::finish(Over how) {
  if (how.error) end_epoch(*how.error);
  if (!over) over = std::move(how);
  changed.notify_all();
}

void ElasticWorker::Impl::end_epoch(const Error& why) {
  sealed = true;
  in_epoch = false;
  if (abort) std::exchange(abort, nullptr)(why);
}

void ElasticWorker::Impl::report() {
  reported = true;
  send(Reported{.epoch = step_commit.epoch(), .worker_progress = step_commit.worker_progress()});
}

}  // namespace cohort::elastic
