#include "cohort/cli/worker/bench_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/base/heap.h"
#include "cohort/cli/worker/pss.h"
#include "cohort/data/loader.h"
#include "cohort/engine/engine.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/zoo.h"
#include "cohort/train/loop/recompute_plan.h"

namespace cohort::cli::worker {
namespace {

constexpr auto kBatchTimeout = 120s;  // for one batch

struct Sums {
  double loss = 0, labels = 0;
};

struct Shares {
  double comm = 0, wait = 0;  // seconds of the window
};

// A step of one implementation: what it lost in this rank's samples, and what it waited for.
class Stepper {
 public:
  virtual ~Stepper() = default;
  virtual Sums step(const data::Batch& batch, std::int64_t number) = 0;
  Shares spent;
  double computed = 0;          // seconds of the last step, to the end of backward
  bool measures_memory = true;  // after every forward and backward: takes milliseconds
  double peak_bytes = 0;        // of the Pss

 protected:
  void note_memory() {
    if (measures_memory) peak_bytes = std::max(peak_bytes, pss_bytes());
  }
};

class CohortStepper final : public Stepper {
 public:
  CohortStepper(const Job& job, nn::Model& model, const StepRun& run)
      : model_(model),
        lr_(run.lr),
        again_(recomputed(job, model, run)),
        engine_(job.comm(), parameters(model, *optim::make(run.rule)),
                {.strategy = run.strategy,
                 .early_update = run.early_update,
                 .norms = run.implementation == "norms",
                 .publish = run.implementation == "waits" ? engine::PublishWhen::wait : engine::PublishWhen::automatic},
                optim::make(fmt::format("{}(lr={})", run.rule, run.lr)), job.suggested_threads() * job.local_size(), job.local_size()) {
    model.wrap_blocks(engine_.block_wrapper(again_));
  }

  Sums step(const data::Batch& batch, std::int64_t number) override {
    const auto began = Clock::now();
    const nn::Tensors t = nn::tensors(batch);
    engine_.begin({.step = number, .lr = lr_});
    const nn::Loss loss = nn::loss_of(model_.forward(t.inputs), t.labels);
    note_memory();
    const auto labels = static_cast<double>(loss.count);
    const double ranks = engine_.averages() ? 1 : static_cast<double>(batch.global_count) / static_cast<double>(batch.count);
    loss.value.backward(weight_.fill_(1 / (ranks * labels)));  // the gradient of the mean over all ranks
    note_memory();
    const double sum = loss.value.item<double>();
    computed = Seconds(Clock::now() - began).count();
    const engine::Verdict verdict = engine_.finish();
    if (!verdict.committed) throw_failure(Kind::corrupt, "step {}: a gradient is not finite; try a smaller --lr", number);
    spent.wait += verdict.seconds.wait;
    spent.comm += verdict.seconds.reduce - verdict.seconds.wait;
    return {sum, labels};
  }

 private:
  static std::vector<engine::Parameter> parameters(const nn::Model& model, const optim::Optimizer& rule) {
    std::vector<engine::Parameter> all;
    const optim::Group decayed{.weight_decay = rule.default_weight_decay()};  // every parameter, as torch's optimizers do
    for (const auto& [name, tensor] : model.named_parameters()) all.push_back({.name = name, .tensor = tensor, .group = decayed});
    engine::assign_units(model, all);
    return all;
  }

  static nn::BlockWrapper recomputed(const Job& job, const nn::Model& model, const StepRun& run) {
    TrainConfig config;
    config.recompute = run.recompute;
    config.data.batch = static_cast<int>(run.batch);
    return train::plan_recompute(job.comm(), config, model).wrapper;
  }

  const nn::Model& model_;
  const double lr_;
  const nn::BlockWrapper again_;       // before the engine, which may take parameters away
  at::Tensor weight_ = at::zeros({});  // what the sum of losses is multiplied with
  engine::Engine engine_;
};

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(std::vector<at::Tensor> parameters, const StepRun& run) {
  if (run.rule == "adam") return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(run.lr));
  if (run.rule == "adamw") return std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(run.lr));
  return std::make_unique<torch::optim::SGD>(std::move(parameters), run.lr);
}

class UnsyncedStepper final : public Stepper {
 public:
  UnsyncedStepper(const nn::Model& model, const StepRun& run) : model_(model), optimizer_(torch_optimizer(model.root().parameters(), run)) {
    keep_freed_memory();  // as the engine does: it is a limit for that
  }

  Sums step(const data::Batch& batch, std::int64_t) override {
    const nn::Tensors t = nn::tensors(batch);
    optimizer_->zero_grad();
    const at::Tensor logits = model_.forward(t.inputs);
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits.flatten(0, -2), t.labels.flatten());
    note_memory();
    loss.backward();
    note_memory();
    optimizer_->step();
    const auto labels = static_cast<double>(t.labels.numel());
    return {loss.item<double>() * labels, labels};
  }

 private:
  const nn::Model& model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

// A synthetic set that fits what the model reads and answers.
std::string synthetic_for(const nn::Model& model, std::int64_t tokens) {
  const nn::Input& input = model.input();
  const at::NoGradGuard no_grad;
  const std::int64_t classes = input.tokens() ? input.vocabulary : model.forward(model.example(2)).size(-1);
  if (input.tokens()) return fmt::format("synthetic(task=tokens, shape={}, classes={})", tokens > 0 ? tokens : input.sizes.at(0), classes);
  std::vector<std::int64_t> shape = input.sizes;
  while (shape.size() < 3) shape.insert(shape.begin(), 1);
  return fmt::format("synthetic(shape={}, classes={})", fmt::join(shape, "x"), classes);
}

std::unique_ptr<data::Loader> open_loader(const Job& job, const nn::Model& model, const StepRun& run) {
  const auto set = data::open_dataset(run.data.empty() ? synthetic_for(model, run.tokens) : run.data);
  const data::Share share{.ranks = job.size(), .rank = job.rank().value, .batch = run.batch, .seed = run.seed, .drop_last = true};
  return std::make_unique<data::Loader>(set, data::LoaderOptions{.share = share, .threads = run.loader_threads});
}

// Mean losses over all ranks: of the first tenth of all steps and of the last quarter.
std::pair<double, double> curve(const Job& job, const std::vector<Sums>& steps) {
  const std::size_t first = std::max<std::size_t>(1, steps.size() / 10), last = std::max<std::size_t>(1, steps.size() / 4);
  std::vector<double> sums(4);
  for (std::size_t i = 0; i < first; ++i) sums[0] += steps[i].loss, sums[1] += steps[i].labels;
  for (std::size_t i = steps.size() - last; i < steps.size(); ++i) sums[2] += steps[i].loss, sums[3] += steps[i].labels;
  job.comm().all_reduce(collective::piece(std::span(sums)), collective::Op::sum);
  return {sums[0] / sums[1], sums[2] / sums[3]};
}

double moved_bytes(const Job& job) {
  using collective::Collective;
  double bytes = 0;
  for (const Collective which :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast, Collective::all_to_all})
    bytes += static_cast<double>(job.comm().moved(which).bytes);
  return bytes;
}

// A step of the fastest tenth: what a step takes when nothing else uses the machine.
double quiet(std::vector<double> took) {
  const auto at = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 10);
  std::nth_element(took.begin(), at, took.end());
  return *at;
}

// Seconds of all steps if each had taken as long as on the rank that was slowest in it: ranks that wait for each other cannot be faster.
double in_lockstep(const Job& job, std::vector<double> took) {
  job.comm().all_reduce(collective::piece(std::span(took)), collective::Op::max);
  return std::accumulate(took.begin(), took.end(), 0.0);
}

}  // namespace

std::string run_steps(const Job& job, const StepRun& run) {
  at::set_num_threads(1);
  at::globalContext().setFlushDenormal(true);
  const double before = pss_bytes();
  nn::Model model = nn::make_model(run.model, run.seed);
  model.train();
  const auto loader = open_loader(job, model, run);
  std::unique_ptr<Stepper> stepper;
  if (run.implementation != "unsynced") stepper = std::make_unique<CohortStepper>(job, model, run);
  if (run.implementation == "unsynced") stepper = std::make_unique<UnsyncedStepper>(model, run);
  std::vector<Sums> steps;
  std::vector<double> took, computed;  // seconds of each step in the window
  Clock::time_point start;
  double moved = 0;
  for (int i = 0; i < run.warm + run.steps; ++i) {
    if (i == run.warm) {
      stepper->spent = {};
      stepper->measures_memory = false;
      job.comm().barrier();
      moved = moved_bytes(job);
      start = Clock::now();
    }
    const auto began = Clock::now();
    steps.push_back(stepper->step(loader->next(Deadline::in(kBatchTimeout)), i + 1));
    if (i < run.warm) continue;
    took.push_back(Seconds(Clock::now() - began).count());
    computed.push_back(stepper->computed);
  }
  job.comm().barrier();
  double times[] = {Seconds(Clock::now() - start).count(), stepper->spent.comm, stepper->spent.wait, stepper->peak_bytes - before,
                    (moved_bytes(job) - moved) / run.steps};
  job.comm().all_reduce({times, 5, collective::Dtype::f64}, collective::Op::average);
  const auto [first, last] = curve(job, steps);
  const double lockstep = in_lockstep(job, took), slowest = in_lockstep(job, computed);
  if (job.rank().value != 0) return {};
  const double samples = static_cast<double>(run.batch) * job.size() * run.steps;
  const double comm = times[1] / times[0], wait = times[2] / times[0];
  const nlohmann::ordered_json line{{"samples_per_s", samples / times[0]},
                                    {"quiet_samples_per_s", samples / run.steps / quiet(took)},
                                    {"lockstep_samples_per_s", samples / lockstep},
                                    {"steps", run.steps},
                                    {"first_loss", first},
                                    {"last_loss", last},
                                    {"compute_share", 1 - comm - wait},
                                    {"wait_share", wait},
                                    {"comm_share", comm},
                                    {"exposed_share", slowest > 0 ? 1 - slowest / lockstep : 0},  // after the slowest rank's backward
                                    {"moved_bytes", times[4]},
                                    {"peak_bytes", times[3]}};
  return line.dump() + "\n";
}

}  // namespace cohort::cli::worker
