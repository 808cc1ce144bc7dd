// One operation of our own, ready to be run again and again: its buffers, filled and checked as measure.h says.
// Owner: the worker. Threads: the rank's own. Failure: the communicator's.
#pragma once
#include <memory>
#include <string>

#include "cohort/bench/measure.h"
#include "cohort/bench/options.h"
#include "cohort/collective/communicator.h"

namespace cohort::bench {

class Operation {
 public:
  Operation(collective::Communicator& world, const BenchOptions& options, std::size_t bytes);

  void run();
  void fill();   // the pattern
  void clear();  // zeros, for timing
  measure::Verdict check() const;
  // x *= 0.5 or x += x over this rank's whole buffer, as floats, whatever the type: the faster one gives the memory limit.
  enum class Update { scale, add };
  void update(Update how);
  std::size_t bytes() const { return shape_.whole * collective::size_of(dtype_); }
  collective::Piece input() const { return in_; }

 private:
  collective::Piece memory(std::size_t count, bool shared);

  collective::Communicator& world_;
  const collective::Dtype dtype_;
  const collective::Op op_;
  const collective::Collective collective_;
  const std::string collective_name_, op_name_, algorithm_;  // shape_ and call_ point into them
  measure::Shape shape_;
  collective::Call call_;
  std::vector<std::shared_ptr<void>> owned_;  // ordinary memory
  std::vector<collective::Region> regions_;   // the communicator's
  collective::Piece in_, out_, updated_;
};

}  // namespace cohort::bench
