#include "cohort/python/hvd/elastic_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/python/options.h"

namespace cohort::python {

using elastic::ElasticWorker;
using elastic::StateRecovery;

namespace {

constexpr Seconds kStepAllowance{
    60};  // for a rank that still computes while the others start the next epoch: they have lost a peer, it has not noticed

}  // namespace

std::unique_ptr<ElasticSession> ElasticSession::from_environment() {
  const group::Environment environment = group::read_environment();
  auto elastic_worker = job::ElasticJob::from_environment(environment);
  if (!elastic_worker) return nullptr;
  const auto limit = environment.find("COHORT_RESET_LIMIT");
  JobOptions options = options_from_environment();
  options.start_timeout = std::max(options.start_timeout, kStepAllowance);
  if (!options.log.empty()) set_log_level(options.log);
  return std::make_unique<ElasticSession>(*std::move(elastic_worker), std::move(options),
                                          limit == environment.end() || limit->second.empty() ? INT64_MAX : parse_int(limit->second));
}

std::optional<ElasticSession::Next> ElasticSession::next(Deadline return_by) {
  if (over_ && ended_by_) throw Failure{*ended_by_};
  if (over_) return Next::over;
  if (inside_) {
    if (!left_) throw_failure(Kind::bug, "the next membership epoch was requested inside membership epoch {}", epoch_.roster.epoch.value);
    job_.elastic_worker().left(why_left_ ? &*why_left_ : nullptr);
    inside_ = false;
  }
  if (!next_) {
    if (!pending_next_.valid()) pending_next_ = std::async(std::launch::async, [this] { return job_.elastic_worker().next(); });
    if (pending_next_.wait_for(return_by.left()) != std::future_status::ready) return std::nullopt;
    next_ = pending_next_.get();
  }
  if (std::holds_alternative<ElasticWorker::Begun>(*next_)) return Next::epoch;
  over_ = true;
  if (const auto* released = std::get_if<ElasticWorker::Released>(&*next_)) {
    if (!released->why) return Next::released;
    ended_by_ = released->why;
    throw Failure{*ended_by_};
  }
  const auto& how = std::get<ElasticWorker::Over>(*next_);
  const bool came_late = epoch_.roster.epoch.value == 0 && how.error && how.error->kind == Kind::aborted;  // the others have the reason
  if (!how.error || came_late) return Next::over;
  ended_by_ = how.error;
  throw Failure{*ended_by_};
}

bool ElasticSession::commit_counts() const {
  if (!next_) return false;
  if (const auto* released = std::get_if<ElasticWorker::Released>(&*next_)) return released->finish && prepared_;
  const auto* begun = std::get_if<ElasticWorker::Begun>(&*next_);
  return begun != nullptr && begun->recovery == StateRecovery::finish;
}

std::unique_ptr<collective::Communicator> ElasticSession::connect() {
  epoch_ = std::get<ElasticWorker::Begun>(*std::exchange(next_, std::nullopt));
  inside_ = true;
  entered_ = left_ = prepared_ = false;
  why_left_.reset();
  if (give_up_if_due()) return nullptr;
  if (!epoch_.base && epoch_.roster.epoch.value > 1 && epoch_.rank == Rank{0})
    log_warning(
        "no worker that had the state is left: this program begins with what it made itself; load your own checkpoint before making the "
        "state");
  std::unique_ptr<collective::Communicator> links;
  try {
    has_state_ = epoch_.recovery != StateRecovery::heal && epoch_.recovery != StateRecovery::disk;
    if (has_state_) {
      step_ = *epoch_.base;
      job_.elastic_worker().have_state(step_);
    }
    links = job_.connect(epoch_);
    links->broadcast(collective::piece(std::span(&step_, 1)), Rank{0}, {.name = "resume step"});
    links->barrier({.name = "epoch start"});
    if (has_state_ || !epoch_.base) state_synced();
    return links;
  } catch (const Failure& failure) {
    log_debug("membership epoch {} ended: {}", epoch_.roster.epoch.value, failure.what());
    job_.leave_epoch(std::move(links), &failure.error());
    inside_ = false;
    if (!job::ends_epoch(failure.error())) throw;
    return nullptr;
  } catch (...) {  // a thread that could not be started: the worker must not abort links that are gone
    job_.leave_epoch(std::move(links), nullptr);
    inside_ = false;
    throw;
  }
}

bool ElasticSession::give_up_if_due() {
  const std::int64_t changes = std::int64_t{epoch_.roster.epoch.value} - 1;
  if (changes <= reset_limit_) return false;
  job_.elastic_worker().fail_job(
      {Kind::aborted, fmt::format("its ranks have changed {} times, and --reset-limit allows {}", changes, reset_limit_), kNoRank});
  job_.leave_epoch(nullptr, nullptr);
  inside_ = false;
  return true;
}

void ElasticSession::state_synced() {
  if (!inside_ || entered_) return;
  if (!std::exchange(has_state_, true)) job_.elastic_worker().have_state(step_);
  job_.elastic_worker().entered(step_);
  entered_ = true;
}

void ElasticSession::prepare() {
  if (!entered_) throw_failure(Kind::usage, "a commit before this worker has the state: hvd.elastic.run provides it, by state.sync()");
  if (!job_.elastic_worker().prepare())
    throw_failure(Kind::aborted, "membership epoch {} is over: its roster changes", epoch_.roster.epoch.value);
  prepared_ = true;
}

void ElasticSession::decide() {
  if (!job_.elastic_worker().decide())
    throw_failure(Kind::aborted, "membership epoch {} is over: its roster changes", epoch_.roster.epoch.value);
  prepared_ = false;
  ++step_;
}

void ElasticSession::leave_epoch(std::optional<Error> why) {
  if (!inside_ || left_) return;
  job_.elastic_worker().guard({});
  left_ = true;
  why_left_ = std::move(why);
}

bool ElasticSession::idle(Deadline return_by) {
  if (!pending_next_.valid()) return true;
  job_.elastic_worker().leave("its process ends");
  return pending_next_.wait_for(return_by.left()) == std::future_status::ready;
}

void ElasticSession::end() {
  job_.elastic_worker().ended(step_);
  inside_ = false;
}

}  // namespace cohort::python
