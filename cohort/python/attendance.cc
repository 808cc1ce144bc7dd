#include "cohort/python/attendance.h"

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

using group::Seat;
using group::Settle;

namespace {

constexpr Seconds kLongStep{60};  // for a rank that computes while the others begin anew to come: they have lost a peer, it has not looked

}  // namespace

std::unique_ptr<Attendance> Attendance::from_environment() {
  const group::Environment environment = group::read_environment();
  auto seat = ElasticJob::from_environment(environment);
  if (!seat) return nullptr;
  const auto limit = environment.find("COHORT_RESET_LIMIT");
  JobOptions options = options_from_environment();
  options.start_timeout = std::max(options.start_timeout, kLongStep);
  if (!options.log.empty()) set_log_level(options.log);
  return std::make_unique<Attendance>(*std::move(seat), std::move(options),
                                      limit == environment.end() || limit->second.empty() ? INT64_MAX : parse_int(limit->second));
}

std::optional<Attendance::Word> Attendance::next(Deadline look_up) {
  if (over_ && ended_by_) throw Failure{*ended_by_};
  if (over_) return Word::over;
  if (inside_) {
    if (!out_) throw_failure(Kind::bug, "the next epoch is asked for from within epoch {}", epoch_.roster.epoch.value);
    job_.seat().left(why_ ? &*why_ : nullptr);
    inside_ = false;
  }
  if (!told_) {
    if (!asked_.valid()) asked_ = std::async(std::launch::async, [this] { return job_.seat().next(); });
    if (asked_.wait_for(look_up.left()) != std::future_status::ready) return std::nullopt;
    told_ = asked_.get();
  }
  if (std::holds_alternative<Seat::Begun>(*told_)) return Word::epoch;
  over_ = true;
  if (std::holds_alternative<Seat::Released>(*told_)) return Word::released;
  const auto& how = std::get<Seat::Over>(*told_);
  const bool came_late = epoch_.roster.epoch.value == 0 && how.error && how.error->kind == Kind::aborted;  // the others tell why
  if (!how.error || came_late) return Word::over;
  ended_by_ = how.error;
  throw Failure{*ended_by_};
}

bool Attendance::finishes() const {
  if (!told_) return false;
  if (const auto* released = std::get_if<Seat::Released>(&*told_)) return released->finish && prepared_;
  const auto* begun = std::get_if<Seat::Begun>(&*told_);
  return begun != nullptr && begun->settle == Settle::finish;
}

std::unique_ptr<collective::Communicator> Attendance::connect() {
  epoch_ = std::get<Seat::Begun>(*std::exchange(told_, std::nullopt));
  inside_ = true;
  entered_ = out_ = prepared_ = false;
  why_.reset();
  set_log_rank(epoch_.rank);
  if (give_up_if_due()) return nullptr;
  if (!epoch_.base && epoch_.roster.epoch.value > 1 && epoch_.rank == Rank{0})
    log_warning(
        "no worker that had the state is left: this program begins with what it made itself; load your own checkpoint before making the "
        "state");
  std::unique_ptr<collective::Communicator> links;
  try {
    has_state_ = epoch_.settle != Settle::heal && epoch_.settle != Settle::disk;
    if (has_state_) {
      step_ = *epoch_.base;
      job_.seat().have_state(step_);
    }
    links = job_.connect(epoch_);
    links->broadcast(collective::piece(std::span(&step_, 1)), Rank{0}, {.name = "where to go on"});
    links->barrier({.name = "the beginning"});
    if (has_state_ || !epoch_.base) healed();
    return links;
  } catch (const Failure& failure) {
    log_debug("epoch {} ended: {}", epoch_.roster.epoch.value, failure.what());
    job_.leave_epoch(std::move(links), &failure.error());
    inside_ = false;
    if (!ends_epoch(failure.error())) throw;
    return nullptr;
  } catch (...) {  // a thread that could not be started: the seat must not abort links that are gone
    job_.leave_epoch(std::move(links), nullptr);
    inside_ = false;
    throw;
  }
}

bool Attendance::give_up_if_due() {
  const std::int64_t changes = std::int64_t{epoch_.roster.epoch.value} - 1;
  if (changes <= most_changes_) return false;
  job_.seat().condemn(
      {Kind::aborted, fmt::format("its ranks have changed {} times, and --reset-limit allows {}", changes, most_changes_), kNoRank});
  job_.leave_epoch(nullptr, nullptr);
  inside_ = false;
  return true;
}

void Attendance::healed() {
  if (!inside_ || entered_) return;
  if (!std::exchange(has_state_, true)) job_.seat().have_state(step_);
  job_.seat().entered(step_);
  entered_ = true;
}

void Attendance::prepare() {
  if (!entered_) throw_failure(Kind::usage, "a commit before this worker has the state: hvd.elastic.run brings it, by state.sync()");
  if (!job_.seat().prepare()) throw_failure(Kind::aborted, "epoch {} is over: its roster changes", epoch_.roster.epoch.value);
  prepared_ = true;
}

void Attendance::decide() {
  if (!job_.seat().decide()) throw_failure(Kind::aborted, "epoch {} is over: its roster changes", epoch_.roster.epoch.value);
  prepared_ = false;
  ++step_;
}

void Attendance::step_out(std::optional<Error> why) {
  if (!inside_ || out_) return;
  job_.seat().guard({});
  out_ = true;
  why_ = std::move(why);
}

bool Attendance::idle(Deadline look_up) {
  if (!asked_.valid()) return true;
  job_.seat().leave("its process ends");
  return asked_.wait_for(look_up.left()) == std::future_status::ready;
}

void Attendance::end() {
  job_.seat().ended(step_);
  inside_ = false;
}

}  // namespace cohort::python
