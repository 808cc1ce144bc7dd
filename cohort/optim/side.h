// What a rule can use beside its slices while a step is prepared (Optimizer::prepare): what the layers saw, the other ranks, the state of
// all that it updates here, and threads.
//   for (const TappedLayer& layer : side.layers()) { .. statistics of layer.seen into sums .. }
//   side.sum(piece(std::span(sums)));                                  // the same bits on every rank
//   side.spread(jobs);                                                 // matrices to invert: each by one rank, results on all
// Layers and jobs are the same, in the same order, on every rank; what a layer saw is this rank's own. An engine implements this.
// Owner: an engine; layers are borrowed until prepare() returns. Threads: the one that trains. Failure: as the communicator's.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/algebra.h"
#include "cohort/base/background_pool.h"
#include "cohort/base/piece.h"
#include "cohort/optim/optimizer.h"

namespace cohort::optim {

// One pass through a layer, forward and backward: a row for each sample; of a convolution for each place of each sample.
struct Seen {
  Piece inputs;     // rows x in; of a convolution the patches that the filter is laid over: channel, height, width
  Piece gradients;  // rows x out: of the loss, by what came out
  std::size_t rows = 0;
  std::size_t samples = 0;  // rows, or of a convolution those of its input
};

// A linear layer or a convolution without groups.
struct TappedLayer {
  std::string weight, bias;  // its parameters; bias: empty, it has none
  std::size_t in = 0, out = 0;
  std::vector<Seen> seen{};  // since the step before; several where gradients are accumulated, none where this rank had no samples
};

// Work for one rank that all need.
struct Job {
  double cost = 1;  // in any unit: they are levelled over the ranks by it
  Piece result;     // what run() writes; other ranks receive it there
  std::function<void()> run;
};

class Side {
 public:
  virtual ~Side() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual const StepInfo& step() const = 0;           // its grad_scale: what gradients are to be multiplied with, but for clipping
  virtual std::span<const TappedLayer> layers() = 0;  // empty unless the rule needs taps
  // What Seen::gradients are to be multiplied with to be those of the mean over the samples of all ranks: step().grad_scale, and where
  // gradients are averaged by the ranks, not summed, divided by their number.
  virtual double seen_scale() const = 0;
  // What this rank updates, in the model's order: to read. replicated: all ranks update the same ones, with the same state.
  virtual std::span<const Slice> slices() = 0;
  virtual bool replicated() const = 0;
  virtual bool alone() const { return false; }  // this rank's step is its own (replicas drift): there is nobody to sum or spread with
  virtual std::size_t tensors() const = 0;      // of the model, that are updated on any rank ..
  virtual std::span<const std::size_t> orders() const = 0;  // .. and of each of slices(): the place of its tensor among them
  virtual void sum(const Piece& values) = 0;                // collective: over the ranks, in place
  virtual void spread(std::span<const Job> jobs) = 0;       // collective: each by one rank
  virtual const Algebra& algebra() const = 0;
  virtual BackgroundPool& background() = 0;
};

// By job: the rank that does it. The most expensive first, each to the rank that has the least to do so far.
std::vector<int> assign_jobs(std::span<const Job> jobs, int ranks);

}  // namespace cohort::optim
