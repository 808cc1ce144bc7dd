// Do not decay the learning rate, increase the batch size (Smith, Kindermans, Ying and Le 2018): the noise of a step is in proportion to
// rate / batch, so where a schedule divides the rate the batch may be multiplied instead, with fewer updates for the same noise.
//   batch = min(most, round(batch_0 full / rate)),   rate' = rate batch / batch_0;   rate: the schedule's, full: where it started
// Laws: rate' / batch = rate / batch_0; rate' is full, within the rounding of the batch, until `most` is reached, and falls then.
// Owner: none. Threads: any. Failure: Kind::usage.
#pragma once
#include <cstdint>

namespace cohort::optim {

struct GrownBatch {
  std::int64_t batch;
  double rate;
};

GrownBatch grow_batch(double rate, double full, std::int64_t first_batch, std::int64_t most);

// Of SGD: rate samples / (batch (1 - momentum)).
double sgd_noise(double rate, double samples, double batch, double momentum);

}  // namespace cohort::optim
