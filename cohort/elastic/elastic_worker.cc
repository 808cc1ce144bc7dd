#include "cohort/elastic/elastic_worker.h"

#include <fcntl.h>

#include <utility>

#include "cohort/elastic/elastic_worker_impl.h"

namespace cohort::elastic {
namespace {

// Whether the error is about a connection to one rank.
bool names_peer(const Error& error) { return error.rank && (error.kind == Kind::peer_lost || error.kind == Kind::timeout); }

}  // namespace

ElasticWorker::ElasticWorker(ElasticWorkerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

ElasticWorker::~ElasticWorker() = default;

ElasticWorker::Next ElasticWorker::next() {
  Impl& s = *impl_;
  std::unique_lock lock(s.mutex);
  while (true) {
    s.in_next = true;
    s.changed.notify_all();
    // Bounded by the limits of the coordinator, and without one by coordinator_timeout.
    s.changed.wait(lock, [&] { return s.over || s.pending || s.leaves_alone; });
    s.in_next = false;
    if (s.over) return *s.over;
    if (s.leaves_alone)
      return Released{s.was_rank_0 && s.step_commit.worker_progress() && !s.ended_at, true, s.lost};  // all ranks of the roster end now
    const auto what = *std::exchange(s.pending, std::nullopt);
    if (const auto* released = std::get_if<Released>(&what)) return *released;
    const BeginEpoch begin = std::get<BeginEpoch>(what);
    const StateRecovery how = s.step_commit.welcome(begin.term, begin.roster.epoch, begin.base, bool{begin.heal_from});
    s.reported = s.settled_sent = s.commit_sent = s.change_wanted = false;
    if (std::exchange(s.pending_sealed, false)) {
      s.step_commit.seal();
      s.report();
      continue;
    }
    s.in_epoch = s.entering = true;
    s.was_rank_0 = begin.rank == Rank{0};
    s.sealed = false;
    return Begun{begin.roster, begin.rank, begin.base, begin.heal_from, how};
  }
}

void ElasticWorker::guard(std::function<void(const Error&)> abort) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  s.abort = std::move(abort);
  if (s.sealed && s.abort) std::exchange(s.abort, nullptr)({Kind::aborted, "the membership epoch is over", kNoRank});
}

net::Listener ElasticWorker::listener() const {
  Fd copy{fcntl(impl_->listener.fd.get(), F_DUPFD_CLOEXEC, 0)};
  if (!copy) throw_system("elastic worker: cannot duplicate the listening socket");
  return {std::move(copy), impl_->listener.address};
}

const std::atomic<bool>& ElasticWorker::sealed() const { return impl_->sealed; }

void ElasticWorker::have_state(std::int64_t step) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->step_commit.phase() == StepCommit::Phase::outside) throw_failure(Kind::aborted, "the job continues without this worker");
  impl_->step_commit.settled(step);
}

void ElasticWorker::entered(std::int64_t step) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  if (!s.in_epoch) throw_failure(Kind::aborted, "membership epoch {} is over before it began", s.step_commit.epoch().value);
  s.entering = false;
  s.settled_sent = true;
  s.send(Settled{.epoch = s.step_commit.epoch(), .step = step});
}

bool ElasticWorker::prepare() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->in_epoch && impl_->step_commit.prepare();
}

bool ElasticWorker::decide() {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  if (!s.in_epoch || !s.step_commit.decide()) return false;
  if (!std::exchange(s.commit_sent, true))
    s.send(Settled{.epoch = s.step_commit.epoch(), .step = s.step_commit.worker_progress()->applied});
  return true;
}

bool ElasticWorker::change_requested() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->change_wanted;
}

bool ElasticWorker::may_write(Epoch epoch) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->in_epoch && impl_->step_commit.may_write(epoch);
}

void ElasticWorker::left(const Error* why) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  s.abort = nullptr;
  s.in_epoch = s.entering = false;
  const bool was_sealed = s.sealed.exchange(true);
  if (s.step_commit.phase() == StepCommit::Phase::outside || s.reported) return;
  s.step_commit.seal();
  const bool follows =
      was_sealed && why != nullptr && why->kind == Kind::peer_lost;  // the peer disconnected because the epoch is over, too
  if (why != nullptr && names_peer(*why) && !follows) s.send(PeerUnreachable{.epoch = s.step_commit.epoch(), .about = why->rank});
  s.report();
}

void ElasticWorker::ended(std::int64_t step) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  s.abort = nullptr;
  s.in_epoch = false;
  s.ended_at = step;
  s.send(Ended{.step = step});
}

void ElasticWorker::leave(std::string why) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  if (std::exchange(s.leaving, true)) return;
  s.why_leaving = std::move(why);
  if (!s.connection) s.leave_alone_at = Deadline::in(s.options.leave_timeout);
  s.send(Leaving{.why = s.why_leaving});
}

bool ElasticWorker::leaving() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->leaving;
}

void ElasticWorker::state_transferred(Rank to) {
  const std::lock_guard lock(impl_->mutex);
  impl_->state_transferred = StateTransferred{.epoch = impl_->step_commit.epoch(), .to = to};
  impl_->send(*impl_->state_transferred);
}

// Waits for the answer, the end of the job: a message may be lost if the process ends right after it was sent.
void ElasticWorker::fail_job(const Error& why) {
  Impl& s = *impl_;
  std::unique_lock lock(s.mutex);
  s.failed = why;
  s.send(JobFailed{.error = why});
  s.changed.wait_for(lock, s.options.leave_timeout, [&] { return s.over.has_value(); });
}

WorkerId ElasticWorker::id() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->id;
}

}  // namespace cohort::elastic
