#include "cohort/data/plan.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/data/sampler.h"

namespace cohort::data {
namespace {

void check(const Share& s) {
  if (s.samples < 1) throw_failure(Kind::usage, "the data set has {} samples; there is nothing to train on", s.samples);
  if (s.ranks < 1 || s.rank < 0 || s.rank >= s.ranks) throw_failure(Kind::usage, "rank {} of {} ranks cannot be", s.rank, s.ranks);
  if (s.batch < 1) throw_failure(Kind::usage, "a batch of {} samples cannot be; ask for at least 1", s.batch);
  if (s.first < 0 || s.first >= s.samples) {
    throw_failure(Kind::usage, "an epoch of {} samples cannot start after {} of them", s.samples, s.first);
  }
}

// More than the set holds is the same as all of it, and cannot overflow.
std::int64_t global_batch(const Share& s) {
  const std::int64_t enough = s.samples / s.ranks + 1;
  return s.batch >= enough ? enough * s.ranks : s.batch * s.ranks;
}

}  // namespace

std::int64_t steps_of(const Share& share) {
  check(share);
  const std::int64_t left = share.samples - share.first;
  const std::int64_t global = global_batch(share);
  if (!share.drop_last) return (left + global - 1) / global;
  if (left < global && share.first == 0) {
    throw_failure(Kind::usage,
                  "{} samples do not fill one batch of {} x {} ranks, and drop_last leaves out what is not full; use a smaller batch",
                  share.samples, share.batch, share.ranks);
  }
  return left / global;
}

EpochPlan plan(const Share& share, std::int64_t epoch) {
  EpochPlan made;
  made.steps_ = steps_of(share);
  made.share_ = share;
  made.epoch_ = epoch;
  made.order_ = sampler_named(share.sampler).order(share.samples, share.seed, epoch);
  return made;
}

std::int64_t EpochPlan::taken(std::int64_t step) const { return std::min(share_.samples, share_.first + step * global_batch(share_)); }

std::int64_t EpochPlan::total(std::int64_t step) const {
  if (step < 0 || step >= steps_) throw_failure(Kind::usage, "epoch {} has steps 0 to {}, not {}", epoch_, steps_ - 1, step);
  return taken(step + 1) - taken(step);
}

std::span<const std::int64_t> EpochPlan::mine(std::int64_t step) const {
  const std::int64_t all = total(step);
  const std::int64_t each = all / share_.ranks;
  const std::int64_t more = all % share_.ranks;  // the first ranks take one more
  const std::int64_t begin = share_.rank * each + std::min<std::int64_t>(share_.rank, more);
  const std::int64_t count = each + (share_.rank < more ? 1 : 0);
  return std::span(order_).subspan(static_cast<std::size_t>(taken(step) + begin), static_cast<std::size_t>(count));
}

}  // namespace cohort::data
