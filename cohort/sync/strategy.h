// How ranks agree on a bucket. Straight-line code: agree() when the last gradient of the bucket has arrived, publish() after the update.
// Owner: Engine. Threads: agree and publish of different buckets may run on different lanes at once, each with its lane's communicator.
// Failure: as the communicator's. To add one: a class and its schema in a file here, a row in strategy.cc, a test.
#pragma once
#include <memory>
#include <string_view>

#include "cohort/sync/bucket.h"

namespace cohort::sync {

struct Wire {
  collective::Communicator* comm = nullptr;
  std::optional<Deadline> deadline{};
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  virtual bool averages() const = 0;  // the agreed gradient is the mean over the ranks; false: their sum
  virtual Sharding sharding(Rank me, int ranks) const { return {0, ranks, me.value}; }  // of every bucket
  int stage() const { return sharding(Rank{0}, 1).stage; }
  virtual void agree(Bucket& bucket, const Wire& wire) = 0;
  virtual void publish(Bucket& bucket, const Wire& wire) = 0;  // fresh parameters reach their readers
};

// Every rank ends with the same gradients: the sum over the ranks, or their average.
std::unique_ptr<Strategy> all_reduce(collective::Op op);

// "all_reduce", "all_reduce(op=sum)", "zero(stage=2)". Kind::usage with the known names.
std::unique_ptr<Strategy> make(std::string_view spec);

}  // namespace cohort::sync
