#include "cohort/engine/gradient_arrivals.h"

#include <utility>

#include "cohort/base/error.h"

namespace cohort::engine {

void ArrivalCounter::assign_buckets(std::vector<std::size_t> members) {
  members_ = std::move(members);
  left_.assign(members_.size(), 0);
}

void ArrivalCounter::start(std::size_t parameters, bool record_order) {
  came_ = 0;
  completed_.clear();
  arrived_.assign(parameters, false);
  left_ = members_;
  record_order_ = record_order;
}

bool ArrivalCounter::add(std::size_t parameter, std::size_t bucket) {
  arrived_[parameter] = true;
  ++came_;
  if (record_order_) order_.push_back(parameter);
  if (--left_[bucket] > 0) return false;
  completed_.push_back(bucket);
  return true;
}

void ArrivalCounter::throw_second(const std::string& name, std::int64_t step) {
  throw_failure(Kind::usage,
                "{} got a second gradient in step {}: one backward per begin(), with sync off for all but the last of a step; "
                "after a backward that failed half-way, start from a new engine",
                name, step);
}

}  // namespace cohort::engine
