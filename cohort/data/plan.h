// Which samples this rank takes at which step of an epoch: integers only.
// The sampler's order is cut into global batches of ranks * batch samples, a global batch into contiguous parts of the ranks. So n ranks
// with batch b take step by step the same set of samples as one rank with batch n * b, and with `partition` every sample comes exactly
// once per epoch. All ranks have the same number of steps. The last global batch may be short: its samples are spread evenly, a rank may
// get none, and total(step) says how many there are over all ranks, which is what a mean over the step must divide by.
// (epoch, step) determines the rest of the run; starting in the middle costs one permutation.
// Owner: values. Threads: any. Failure: Kind::usage for shares that cannot be.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::data {

struct Share {
  std::int64_t samples = 0;  // of the whole data set
  int ranks = 1;
  int rank = 0;
  std::int64_t batch = 1;  // of one rank
  std::uint64_t seed = 0;
  bool drop_last = false;  // leave out a last batch that is not full
  std::string sampler = "partition";
  std::int64_t first = 0;  // samples of the epoch that all ranks together took before step 0: batch or ranks may change within an epoch
};

class EpochPlan {
 public:
  std::int64_t epoch() const { return epoch_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t total(std::int64_t step) const;                  // samples of this step over all ranks
  std::span<const std::int64_t> mine(std::int64_t step) const;  // indices of this rank; valid as long as the plan
  std::int64_t taken(std::int64_t step) const;                  // samples of the epoch gone before this step: Share::first for a new share

 private:
  friend EpochPlan plan(const Share& share, std::int64_t epoch);
  Share share_;
  std::int64_t epoch_ = 0;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> order_;
};

EpochPlan plan(const Share& share, std::int64_t epoch);
std::int64_t steps_of(const Share& share);  // the same number for every epoch, without the cost of an order

}  // namespace cohort::data
