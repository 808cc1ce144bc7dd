#include "cohort/data/rebalance.h"

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort::data {
namespace {

bool nothing_left(Share share, std::int64_t taken) {
  if (taken >= share.samples) return true;
  share.first = taken;
  return taken > 0 && steps_of(share) == 0;  // drop_last: what is left fills no batch
}

}  // namespace

RebalancedShare rebalance(Share share, Progress progress, int rank, int ranks) {
  if (progress.taken < 0 || progress.taken > share.samples)
    throw_failure(Kind::usage, "{} samples of an epoch of {} cannot have been taken", progress.taken, share.samples);
  share.rank = rank;
  share.ranks = ranks;
  if (nothing_left(share, progress.taken)) progress = {progress.epoch + 1, 0};
  share.first = progress.taken;
  steps_of(share);  // refuses what cannot be
  return {share, progress};
}

Progress after_step(const Share& share, Progress progress) {
  const auto left = share.samples - progress.taken;
  const auto each = std::min(share.batch, left / share.ranks + 1);  // more than is left is all of it, and cannot overflow
  progress.taken += std::min(left, each * share.ranks);
  return nothing_left(share, progress.taken) ? Progress{progress.epoch + 1, 0} : progress;
}

}  // namespace cohort::data
