// An ElasticJob is a worker's part in a job whose roster changes while it trains: its seat (group/seat.h), and a communicator for each
// epoch. A changed roster is a new communicator with memory of its own: what a worker of an old epoch still writes is read by nobody.
//
//   ElasticJob job(ElasticJob::from_environment(), options);
//   Seat::Next next = job.seat().next();
//   auto comm = job.connect(std::get<Seat::Begun>(next));     // collective: all of the roster
//   bool change = job.commit(*comm);                          // every step: all voted. True: the roster changes now
//   job.leave_epoch(std::move(comm), error);
//
// Owner: whoever trains. Threads: one, but for seat().leave(). Failure: Kind::peer_lost, Kind::timeout and Kind::aborted end an epoch, see
// ends_epoch(); Kind::usage for another `comm` than own, before it joins; anything else is this worker's own.
#pragma once
#include <memory>
#include <optional>

#include "cohort/collective/communicator.h"
#include "cohort/group/place.h"
#include "cohort/group/seat.h"
#include "cohort/train/job.h"

namespace cohort {

class ElasticJob {
 public:
  // What `cohort run --min-n` gave this process; none: its membership is fixed.
  static std::optional<group::SeatOptions> from_environment(const group::Environment& environment);

  ElasticJob(group::SeatOptions seat, JobOptions options);
  group::Seat& seat() { return seat_; }
  const group::Seat& seat() const { return seat_; }

  std::unique_ptr<collective::Communicator> connect(const group::Seat::Begun& epoch);
  // The step's gradients are agreed upon and held. Returns when all ranks voted for it: it counts. Kind::aborted: it was called off here.
  bool commit(collective::Communicator& comm);
  // An epoch ended; error: because of it. Links and memory go before the coordinator hears of it.
  void leave_epoch(std::unique_ptr<collective::Communicator> comm, const Error* error);

 private:
  const group::SeatOptions where_;
  const JobOptions options_;
  group::Seat seat_;
};

// Whether a failure is one of the roster, after which the survivors go on.
bool ends_epoch(const Error& error);

}  // namespace cohort
