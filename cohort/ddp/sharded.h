// Sharded trains a module whose optimizer state, gradients and (stage 3) parameters are sharded over the ranks, in a loop of your own.
//
//   cohort::Job job = cohort::init();
//   cohort::Sharded zero(job, net, {.stage = 3, .optimizer = "adamw(lr=1e-3)",
//                                   .blocks = {{"in", net->in.ptr()}, {"out", net->out.ptr()}}});
//   for (...) {                                       // every rank its own batches
//     x = zero.block("in", x, [&](auto& x) { return net->in(x); });   // stage 3: parameters are gathered while a block runs
//     loss.backward();                              // gradients are reduced as they come: param.grad is undefined afterwards
//     zero.step();                                  // reduce, clip, update: the same verdict on every rank
//   }
//   zero.save("runs/own");                            // .. and on any number of ranks later, before the loop: zero.load("runs/own");
//
// The optimizer does what torch::optim's of that name does in a plain loop: its weight decay is for every parameter, biases and weights of
// normalisations too (Trainer leaves those of one dimension out). Others for some parameters: ShardedOptions::groups.
//
// Rules. Every rank runs the same blocks in the same order and calls backward() and step() equally often; a rank without samples runs them
// on an empty batch. Parameters of no block are not sharded. Module and job must outlive it; in stage 3 its parameters can be read while a
// block runs or a Hold lives, and for good after engine().make_whole(), which ends training. Owner: the caller. Threads: the one that
// trains. Failure: from backward() and step(), naming the bucket and the rank; Kind::usage from the constructor, on all ranks, when their
// modules or options differ or a group is wrong.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/config.h"
#include "cohort/ddp/module_holder.h"
#include "cohort/engine/engine.h"

namespace cohort::job {
class Job;
}
namespace torch::nn {
class Module;
}

namespace cohort::ddp {

using job::Job;

struct ShardedBlock {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
};

// A parameter group: .groups = {{.parameters = {"*.bias", "norm.*"}, .weight_decay = 0}, {.parameters = {"head.*"}, .lr_scale = 10}}
struct ShardedGroup {
  std::vector<std::string> parameters;   // patterns of whole names: * stands for any text, ? for one character
  std::optional<double> weight_decay{};  // in place of the optimizer's
  double lr_scale = 1;                   // times the learning rate of the step
};

struct ShardedOptions {
  int stage = 1;
  std::string optimizer = "adamw";
  double clip_norm = 0;  // largest norm of the whole gradient; 0: no clipping
  ByteSize first_bucket{1_MiB};
  ByteSize bucket{25_MiB};
  int lanes = -1;                      // threads that reduce buckets while backward runs; -1: decided from the free cores
  bool sum = false;                    // gradients are added up over the ranks, not averaged
  std::string more{};                  // further parameters of the strategy: "buddy=true"
  std::string strategy{};              // in place of stage, sum and more: "zero(stage=2, buddy=true)"
  std::string codec = "none";          // how gradients are sent in fewer bytes: "int8", "topk(ratio=0.01)" (docs/codecs.md)
  std::vector<ShardedBlock> blocks{};  // stage 3
  std::vector<ShardedGroup> groups{};  // the first that names a parameter counts; one of no group has the optimizer's own values
};

class Sharded {
 public:
  Sharded(Job& job, torch::nn::Module& module, const ShardedOptions& options = {});
  // cores, ranks_here: of this host, for choosing lanes.
  Sharded(collective::Communicator& comm, torch::nn::Module& module, const ShardedOptions& options = {}, int cores = 1, int ranks_here = 1);
  // A module holder (`Net net;` after TORCH_MODULE(Net), Sequential) or a shared_ptr: the module it holds.
  template <ModuleHolder Holder>
  Sharded(Job& job, Holder& net, const ShardedOptions& options = {}) : Sharded(job, module_of(net), options) {}
  template <ModuleHolder Holder>
  Sharded(collective::Communicator& comm, Holder& net, const ShardedOptions& options = {}, int cores = 1, int ranks_here = 1)
      : Sharded(comm, module_of(net), options, cores, ranks_here) {}
  ~Sharded();
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  at::Tensor block(const std::string& name, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward);
  // The learning rate of the steps from now on; until then it is the optimizer's own. Before backward: what a codec keeps for the next
  // steps is weighed with it (docs/codecs.md).
  void set_lr(double lr);
  engine::Verdict step();
  engine::Verdict step(double lr);  // this one with another rate; Kind::usage with a codec that keeps what it does not send: set_lr()

  // While it lives one backward() adds to the gradients of the step, and step() is not called for it: all but the last of a large batch.
  class Pause {
   public:
    explicit Pause(Sharded* sharded);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Sharded* sharded_;
  };
  [[nodiscard]] Pause no_sync() { return Pause(this); }

  // Collective: parameters, buffers, optimizer state, what a codec has not sent and the number of updates, as <folder>/step-00000040,
  // between two steps; the newest `keep` stay. Returns its path. The format is Trainer's: `cohort reshard` reads it.
  std::string save(const std::string& folder, int keep = 3);
  // Collective, between two steps: the newest whole one, of any number of ranks and any stage, also of Trainer (the folder `checkpoints` of
  // its run). Learning rate, decay and groups are this program's; a warning says where groups were others. Empty: there is none.
  std::optional<std::int64_t> load(const std::string& folder);
  std::int64_t updates() const;  // that the optimizer made, those before load() included; not steps that were called off

  engine::Engine& engine();  // shards for checkpoints, bytes held, bytes communicated

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::ddp

namespace cohort {
using ddp::Sharded;
using ddp::ShardedBlock;
using ddp::ShardedGroup;
using ddp::ShardedOptions;
}  // namespace cohort
