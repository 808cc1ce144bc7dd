// Steps in a row whose loss or gradients are not finite. When they do not end, the run has diverged, and going on only takes time.
// What explains itself is not counted: while a dynamic loss scale is above 1 its steps are left out until it has fallen far enough. A loss
// that is not finite counts always: it is taken before it is scaled. All ranks count alike: loss and verdict are those of all ranks; where
// replicas drift they are known at sync rounds, for all steps since the last one.
// Owner: TrainLoop. Threads: one. Failure: none.
#pragma once
#include <cstdint>
#include <string>

namespace cohort::train {

struct StepResult;   // train_loop.h
struct TrainConfig;  // cohort/train/config.h

class NonFiniteSteps {
 public:
  // dynamic: the loss scale falls when gradients overflow.
  NonFiniteSteps(int limit, bool dynamic) : limit_(limit), dynamic_(dynamic) {}

  void add(const StepResult& result, std::int64_t step);
  void reset() { count_ = 0; }
  std::int64_t in_a_row() const { return count_; }
  std::int64_t since() const { return since_; }  // the first of them
  bool too_many() const { return limit_ > 0 && count_ >= limit_; }

  // What went wrong, its likely cause and what to do. newest: step of the newest checkpoint; -1: there is none.
  std::string text(const TrainConfig& config, std::int64_t newest) const;

 private:
  std::string cause(const TrainConfig& config) const;

  const int limit_;  // 0: none
  const bool dynamic_;
  std::int64_t count_ = 0, since_ = 0, last_ = 0;
  double loss_ = 0, lr_ = 0, scale_ = 1;  // of the last one
};

}  // namespace cohort::train
