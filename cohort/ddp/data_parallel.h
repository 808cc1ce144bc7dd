// DataParallel lets an ordinary libtorch loop train on many ranks: it averages gradients when backward() ends and leaves the rest alone.
//
//   cohort::Job job = cohort::init();
//   cohort::DataParallel ddp(job, net);       // a module, or its holder: from here on all ranks have rank 0's parameters and buffers
//   for (...) {                               // every rank its own batches
//     optimizer.zero_grad();
//     loss.backward();                        // when it returns, gradients are the average over the ranks
//     optimizer.step();                       // the same update everywhere
//   }
//
// With an optimizer of Cohort's (.optimizer) it updates too, and ranks may train together in any way there is (docs/strategies.md):
//
//   cohort::DataParallel ddp(job, net, {.strategy = "local_sgd(h=8)", .optimizer = "sgd(lr=0.1, momentum=0.9)"});
//   for (...) {
//     loss.backward();
//     ddp.step();                             // in place of optimizer.step() and zero_grad(): update, and meet the others when it is due
//   }
//   { const auto consensus = ddp.consensus(); evaluate(net); }   // where replicas drift: the one model that the job stands for
//
// Rules. Every rank calls backward() equally often. A parameter without a gradient in a step counts as zero and has a gradient of zero
// afterwards. zero_grad() may drop the gradients; zero_grad(false) keeps them in memory that peers read in place and saves a copy. Buffers
// are rank 0's at the start, then each rank's own until sync_buffers(). Module and job must outlive it.
// Owner: the caller. Threads: the one that trains. Failure: from backward(), naming the bucket and the rank; Kind::usage from the
// constructor, on all ranks, when their modules or options differ, naming the first difference.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/config.h"
#include "cohort/collective/communicator.h"
#include "cohort/ddp/module_holder.h"
#include "cohort/engine/engine.h"

namespace cohort::job {
class Job;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace cohort::ddp {

using job::Job;

struct DataParallelOptions {
  std::string strategy = "all_reduce";  // how ranks train together; other ones than all_reduce want an optimizer
  std::string codec = "none";           // how gradients are sent in fewer bytes: "int8", "topk(ratio=0.01)" (docs/codecs.md)
  std::string optimizer{};              // empty: the program has one of torch::optim
  double clip_norm = 0;                 // with an optimizer: largest norm of the whole gradient; 0: no clipping
  ByteSize first_bucket{1_MiB};
  ByteSize bucket{25_MiB};  // gradients that travel together; 0: all of them
  int lanes = -1;           // threads that reduce buckets while backward runs; -1: decided from the free cores
};

enum class Buffers { average, broadcast };  // mean of floating point ones over the ranks, others as rank 0's | all as rank 0's

class DataParallel {
 public:
  DataParallel(Job& job, torch::nn::Module& module, const DataParallelOptions& options = {});
  // cores, ranks_here: of this host, for choosing lanes.
  DataParallel(collective::Communicator& comm, torch::nn::Module& module, const DataParallelOptions& options = {}, int cores = 1,
               int ranks_here = 1);
  // A module holder (`Net net;` after TORCH_MODULE(Net), Sequential) or a shared_ptr: the module it holds.
  template <ModuleHolder Holder>
  DataParallel(Job& job, Holder& net, const DataParallelOptions& options = {}) : DataParallel(job, module_of(net), options) {}
  template <ModuleHolder Holder>
  DataParallel(collective::Communicator& comm, Holder& net, const DataParallelOptions& options = {}, int cores = 1, int ranks_here = 1)
      : DataParallel(comm, module_of(net), options, cores, ranks_here) {}
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // While it lives, backward() adds to this rank's own gradients and communicates nothing: all but the last backward of a large batch.
  class Pause {
   public:
    explicit Pause(DataParallel* ddp);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    DataParallel* ddp_;
  };
  [[nodiscard]] Pause no_sync() { return Pause(this); }

  // Rank 0's state and options (momentum, step counts, learning rates) on every rank: after rank 0 alone has read a checkpoint.
  void broadcast_optimizer_state(torch::optim::Optimizer& optimizer);
  // Rank 0's parameters and buffers on every rank, as in the constructor: after weights were loaded into the module. What a strategy keeps
  // beside the model (anchor, centre) begins anew with them.
  void broadcast_parameters();
  void sync_buffers(Buffers how = Buffers::average);
  // Whether every gradient of the last backward was finite, the same answer on all ranks: skip optimizer.step() when not.
  bool finite() const;
  // --- with .optimizer; Kind::usage without
  // The learning rate of the steps from now on; until then it is the optimizer's own. Before backward: what a codec keeps for the next
  // steps is weighed with it (docs/codecs.md).
  void set_lr(double lr);
  engine::Verdict step();           // after backward(), on every rank
  engine::Verdict step(double lr);  // this one with another rate; Kind::usage with a codec that keeps what it does not send: set_lr()
  // Collective, between two steps: while it lives the parameters are those of the one model that the job stands for.
  [[nodiscard]] std::unique_ptr<engine::Consensus> consensus();
  std::size_t buckets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::ddp

namespace cohort {
using ddp::Buffers;
using ddp::DataParallel;
using ddp::DataParallelOptions;
}  // namespace cohort
