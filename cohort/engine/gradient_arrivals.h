// Counts the gradients of a backward as their hooks fire: which parameters have one, which buckets are complete, in which order both came.
// Owner: Engine. Threads: the one that runs backward. Failure: Kind::usage for a second gradient of one parameter.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::engine {

class ArrivalCounter {
 public:
  // `members`: how many parameters each bucket has.
  void assign_buckets(std::vector<std::size_t> members);
  // A backward begins whose gradients are reduced. record_order: remember the order of its parameters.
  void start(std::size_t parameters, bool record_order);
  void clear_touched(std::size_t parameters) { touched_.assign(parameters, false); }

  bool none_yet() const { return came_ == 0; }
  void touch(std::size_t parameter) { touched_[parameter] = true; }
  // Refuses a second gradient of this backward: a lane may have reduced the first one already.
  void refuse_second(std::size_t parameter, const std::string& name, std::int64_t step) const {
    if (arrived_[parameter]) throw_second(name, step);
  }
  // Returns whether it was the last gradient that the bucket waited for.
  bool add(std::size_t parameter, std::size_t bucket);
  void complete_all() { left_.assign(left_.size(), 0); }  // some parameters got no gradient in this step

  bool complete(std::size_t bucket) const { return left_[bucket] == 0; }
  bool arrived(std::size_t parameter) const { return arrived_[parameter]; }
  const std::vector<bool>& touched() const { return touched_; }
  const std::vector<std::size_t>& order() const { return order_; }
  const std::vector<std::size_t>& completed() const { return completed_; }

 private:
  [[noreturn]] static void throw_second(const std::string& name, std::int64_t step);

  std::vector<bool> arrived_;           // by parameter, in this backward
  std::vector<bool> touched_;           // by parameter, since the last finish(): in any of the backwards of an accumulated step
  std::size_t came_ = 0;                // how many have arrived
  std::vector<std::size_t> members_;    // by bucket
  std::vector<std::size_t> left_;       // by bucket: gradients still to come
  std::vector<std::size_t> completed_;  // buckets in the order their last gradient came
  std::vector<std::size_t> order_;      // parameters in the order of arrival, where recorded
  bool record_order_ = false;
};

}  // namespace cohort::engine
