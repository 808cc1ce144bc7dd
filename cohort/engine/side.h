// What an engine offers to its rule while a step is prepared (optim/side.h): its tap on the layers, what it updates, its communicator, its
// threads.
// Owner: Engine. Threads: the one that trains. Failure: the communicator's; Kind::usage when no layer was seen though backward ran.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/engine/bucket.h"
#include "cohort/engine/update.h"
#include "cohort/nn/tap.h"
#include "cohort/optim/side.h"

namespace cohort::engine {

// What a rank updates, its buddy's part too, in the model's order.
class UpdatedSlices {
 public:
  explicit UpdatedSlices(const Buckets& buckets);
  std::span<const optim::Slice> all() const { return slices_; }
  std::span<const std::size_t> orders() const { return orders_; }

 private:
  std::vector<optim::Slice> slices_;
  std::vector<std::size_t> orders_;
  std::vector<std::vector<void*>> states_;  // what they borrow
};

class EngineSide final : public optim::Side {
 public:
  EngineSide(collective::Communicator& comm, const nn::NamedTensors& parameters)
      : comm_(comm), tap_(parameters), tensors_(parameters.size()) {}

  nn::Tap& tap() { return tap_; }
  enum class Ranks : std::uint8_t { alike, share, alone };  // all update all of the buckets, the same way; each a part; each by itself
  void prepare(optim::Optimizer& rule, const optim::StepInfo& step, const Buckets& buckets, Ranks together, bool had_gradients);
  void set_averages(bool averages) { averages_ = averages; }  // of the strategy: Side::seen_scale()

  int rank() const override { return comm_.rank().value; }
  int ranks() const override { return comm_.size(); }
  const optim::StepInfo& step() const override { return step_; }
  std::span<const optim::TappedLayer> layers() override { return layers_; }
  double seen_scale() const override { return step_.grad_scale / (averages_ ? ranks() : 1); }
  std::span<const optim::Slice> slices() override { return slices_; }
  bool replicated() const override { return together_ == Ranks::alike; }
  bool alone() const override { return together_ == Ranks::alone; }
  std::size_t tensors() const override { return tensors_; }
  std::span<const std::size_t> orders() const override { return orders_; }
  void sum(const Piece& values) override;
  void spread(std::span<const optim::Job> jobs) override;
  const Algebra& algebra() const override { return thread_algebra(); }
  BackgroundPool& background() override { return background_; }

 private:
  collective::Communicator& comm_;
  nn::Tap tap_;
  const std::size_t tensors_;
  optim::StepInfo step_;
  std::vector<optim::TappedLayer> layers_;  // of this step
  std::span<const optim::Slice> slices_;    // likewise
  std::span<const std::size_t> orders_;     // likewise
  Ranks together_ = Ranks::alike;
  bool averages_ = false;
  BackgroundPool background_;
};

}  // namespace cohort::engine
