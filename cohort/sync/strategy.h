// How the gradients of a bucket are reduced, and how updated parameters reach the ranks that read them: reduce_gradients() when the last
// gradient of the bucket has arrived, publish_parameters() after the update.
// Owner: Engine. Threads: both may run for different buckets at once on different lanes, each with its lane's communicator.
// Failure: as the communicator's. To add one: a class and its schema in a file here, a row in strategy.cc, a test.
#pragma once
#include <memory>
#include <string_view>

#include "cohort/sync/bucket.h"

namespace cohort::sync {

// What a collective of a strategy runs over.
struct CommContext {
  collective::Communicator* comm = nullptr;
  std::optional<Deadline> deadline{};
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  virtual bool averages() const = 0;  // the reduced gradient is the mean over the ranks; false: their sum
  virtual Sharding sharding(Rank me, int ranks) const { return {0, ranks, me.value}; }  // of every bucket
  int stage() const { return sharding(Rank{0}, 1).stage; }
  virtual void reduce_gradients(Bucket& bucket, const CommContext& context) = 0;
  virtual void publish_parameters(Bucket& bucket, const CommContext& context) = 0;  // updated ones reach the ranks that read them
};

// Every rank ends with the same gradients: the sum over the ranks, or their average.
std::unique_ptr<Strategy> all_reduce(collective::Op op);

// "all_reduce", "all_reduce(op=sum)", "zero(stage=2)". Kind::usage with the known names.
std::unique_ptr<Strategy> make(std::string_view spec);

}  // namespace cohort::sync
