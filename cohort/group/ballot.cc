#include "cohort/group/ballot.h"

#include "cohort/base/error.h"

namespace cohort::group {

Settle Ballot::welcome(std::uint64_t term, Epoch epoch, std::optional<std::int64_t> base, bool heals) {
  if (!heeds(term, epoch) || epoch == epoch_)
    throw_failure(Kind::bug, "welcome to epoch {} of term {} after epoch {} of term {}", epoch.value, term, epoch_.value, term_);
  const std::optional<Standing> had = standing_;
  term_ = term;
  epoch_ = epoch;
  phase_ = Phase::settling;
  if (heals || !base) {
    standing_.reset();  // until settled() there is nothing to report
    return heals ? Settle::heal : Settle::disk;
  }
  if (!had || *base < had->applied || *base > had->reach())
    throw_failure(Kind::bug, "epoch {} goes on from step {}, which cannot be reached from {}", epoch.value, *base,
                  had ? fmt::format("step {}{}", had->applied, had->prepared ? " and one prepared" : "") : "no state");
  // What was prepared is kept until settled(): a change in between must find it.
  if (*base == had->applied && had->prepared) return Settle::discard;
  return *base == had->applied ? Settle::stay : Settle::finish;
}

void Ballot::settled(std::int64_t applied) {
  if (phase_ != Phase::settling && phase_ != Phase::sealed) throw_failure(Kind::bug, "settled on step {} without a welcome", applied);
  standing_ = Standing{epoch_, applied, false};
  if (phase_ == Phase::settling) phase_ = Phase::open;  // sealed meanwhile: the state is here, the epoch is over
}

bool Ballot::prepare() {
  if (phase_ == Phase::sealed) return false;
  if (phase_ != Phase::open) throw_failure(Kind::bug, "a vote in epoch {} that is not open", epoch_.value);
  standing_->prepared = true;
  phase_ = Phase::prepared;
  return true;
}

bool Ballot::decide() {
  if (phase_ == Phase::sealed) return false;
  if (phase_ != Phase::prepared) throw_failure(Kind::bug, "a step of epoch {} was decided that was not voted for", epoch_.value);
  standing_ = Standing{epoch_, standing_->applied + 1, false};
  phase_ = Phase::open;
  return true;
}

std::optional<Standing> Ballot::seal() {
  if (phase_ != Phase::outside) phase_ = Phase::sealed;
  return standing_;
}

void Ballot::outside() {
  phase_ = Phase::outside;
  standing_.reset();
}

}  // namespace cohort::group
