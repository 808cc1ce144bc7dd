#include "cohort/elastic/step_commit.h"

#include "cohort/base/error.h"

namespace cohort::elastic {

StateRecovery StepCommit::welcome(std::uint64_t term, Epoch epoch, std::optional<std::int64_t> base, bool heals) {
  if (!accepts(term, epoch) || epoch == epoch_)
    throw_failure(Kind::bug, "membership epoch {} of term {} cannot follow membership epoch {} of term {}", epoch.value, term, epoch_.value,
                  term_);
  const std::optional<WorkerProgress> before = progress_;
  term_ = term;
  epoch_ = epoch;
  phase_ = Phase::settling;
  if (heals || !base) {
    progress_.reset();  // until settled() there is nothing to report
    return heals ? StateRecovery::heal : StateRecovery::disk;
  }
  if (!before || *base < before->applied || *base > before->reach())
    throw_failure(Kind::bug, "membership epoch {} continues from step {}, which cannot be reached from {}", epoch.value, *base,
                  before ? fmt::format("step {}{}", before->applied, before->prepared ? " and one prepared" : "") : "no state");
  // The prepared step is kept until settled(): a change in between must find it.
  if (*base == before->applied && before->prepared) return StateRecovery::discard;
  return *base == before->applied ? StateRecovery::stay : StateRecovery::finish;
}

void StepCommit::settled(std::int64_t applied) {
  if (phase_ != Phase::settling && phase_ != Phase::sealed)
    throw_failure(Kind::bug, "settled on step {} outside of a membership epoch", applied);
  progress_ = WorkerProgress{epoch_, applied, false};
  if (phase_ == Phase::settling) phase_ = Phase::open;  // sealed meanwhile: the state is here, the epoch is over
}

bool StepCommit::prepare() {
  if (phase_ == Phase::sealed) return false;
  if (phase_ != Phase::open) throw_failure(Kind::bug, "a vote in membership epoch {}, which is not open", epoch_.value);
  progress_->prepared = true;
  phase_ = Phase::prepared;
  return true;
}

bool StepCommit::decide() {
  if (phase_ == Phase::sealed) return false;
  if (phase_ != Phase::prepared) throw_failure(Kind::bug, "a step of membership epoch {} was decided before its vote", epoch_.value);
  progress_ = WorkerProgress{epoch_, progress_->applied + 1, false};
  phase_ = Phase::open;
  return true;
}

std::optional<WorkerProgress> StepCommit::seal() {
  if (phase_ != Phase::outside) phase_ = Phase::sealed;
  return progress_;
}

void StepCommit::outside() {
  phase_ = Phase::outside;
  progress_.reset();
}

}  // namespace cohort::elastic
