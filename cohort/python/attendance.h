// This process's part in an elastic job (train/elastic_job.h), as the Engine needs it: one seat for the life of the process, one epoch at a
// time, and the number of commits that count, which is what the seat calls the step.
//
//   while (!(word = a.next(look_up))) ...     // what comes next. A thread of its own asks, since that may take long
//   auto links = a.connect();                 // none: the epoch was over before it began; ask again
//   a.prepare(); a vote over all ranks; a.decide();
//   a.step_out(error);                        // from the epoch. next() then says so, and settles a commit that was under way: finishes()
//
// The state itself is the caller's. The first workers of a job begin with what their program made: that is step 0, and all of them have it.
// Whoever comes later has the state when the caller says so: healed().
// Owner: Engine. Threads: one at a time; ask_to_leave() from any. Failure: what ends an epoch (ends_epoch) thrown by prepare, decide and
// healed; Kind::usage for an environment that makes no sense; from next(), what ended the job.
#pragma once
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "cohort/train/elastic_job.h"

namespace cohort::python {

class Attendance {
 public:
  static std::unique_ptr<Attendance> from_environment();  // none: the job has a fixed number of ranks
  Attendance(group::SeatOptions seat, JobOptions options, std::int64_t most_changes)
      : job_(std::move(seat), std::move(options)), most_changes_(most_changes) {}

  enum class Word { epoch, released, over };
  std::optional<Word> next(Deadline look_up);
  bool finishes() const;  // after next(): the commit that was under way counts, also where this worker may go
  std::unique_ptr<collective::Communicator> connect();
  const group::Seat::Begun& epoch() const { return epoch_; }
  bool inside() const { return inside_; }  // of an epoch, or stepped out of one and nobody knows
  bool over() const { return over_; }      // for this process

  void healed();
  void prepare();
  void decide();
  bool wish() const { return job_.seat().wish(); }
  void step_out(std::optional<Error> why);  // before the epoch's links go
  bool parted() const { return inside_ && out_ && !why_; }
  void end();                   // training is over, and all ranks know
  bool idle(Deadline look_up);  // nobody waits for what comes next any more; asks to leave where somebody does
  void ask_to_leave(std::string why) { job_.seat().leave(std::move(why)); }

 private:
  bool give_up_if_due();

  ElasticJob job_;
  const std::int64_t most_changes_;  // of the roster, before the job is given up (COHORT_RESET_LIMIT)
  std::future<group::Seat::Next> asked_;
  std::optional<group::Seat::Next> told_;
  group::Seat::Begun epoch_;
  std::int64_t step_ = 0;
  bool inside_ = false, has_state_ = false, entered_ = false, prepared_ = false, out_ = false, over_ = false;
  std::optional<Error> why_;       // it stepped out
  std::optional<Error> ended_by_;  // what ended the job, said to everybody who asks again
};

}  // namespace cohort::python
