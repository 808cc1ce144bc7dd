// cohort-worker bench-memory: one rank of `cohort bench memory`. Trains a few steps, then says what it holds.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/ledger.h"
#include "cohort/base/spec.h"
#include "cohort/base/text.h"
#include "cohort/cli/worker/pss.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/job/job.h"
#include "cohort/nn/zoo.h"
#include "cohort/optim/optimizer.h"
#include "cohort/plan/choices.h"
#include "cohort/plan/forecast/profile_model.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::cli::worker {
namespace {

struct MemoryTaskOptions {
  std::string model, rule, out;
  int stage = 0, steps = 3, batch = 1;
};

constexpr MemoryClass kClasses[] = {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer, MemoryClass::buckets};

// A spec of the same widths, one layer deep: what libraries keep for themselves (scratch, compiled kernels) is there before we look.
std::string shallow(const std::string& model) {
  Spec spec = Spec::parse(model);
  for (auto& param : spec.params)
    if (param.key == "layers") param.value = "1";
  return spec.to_string();
}

TrainConfig config_of(const MemoryTaskOptions& w, const std::string& model, const nn::Input& input) {
  TrainConfig config;
  config.model = model;
  if (!input.tokens()) throw_failure(Kind::usage, "model '{}' reads pictures: memory is measured with a model that reads tokens", model);
  config.data.train = fmt::format("synthetic(task=tokens, shape={}, classes={}, samples=1000)", input.sizes.at(0),
                                  std::min<std::int64_t>(input.vocabulary, 256));
  config.data.test.clear();
  config.data.transforms.clear();
  config.data.batch = w.batch;
  config.optimizer = w.rule;
  config.optim.schedule = "constant";
  config.sync = w.stage == 0 ? "all_reduce(op=sum)" : fmt::format("zero(stage={}, op=sum)", w.stage);
  return config;
}

// Every rank has given back what it does not need, and none has gone on.
double settled_pss(const Job& job) {
  malloc_trim(0);
  job.comm().barrier({.name = "memory is settled"});
  const double bytes = pss_bytes();
  job.comm().barrier({.name = "memory is read"});
  return bytes;
}

// fp32: 4 bytes a parameter, a gradient and each state of the rule, shared out by the stage; and what is on its way.
std::array<double, kMemoryClasses> formulas(const MemoryTaskOptions& w, train::TrainLoop& loop, int ranks) {
  double states = 0;
  for (const auto& [name, p] : loop.model().named_parameters())
    states += static_cast<double>(p.numel()) * optim::state_per_element(*loop.engine().rule(), p.sizes().vec());
  states /= static_cast<double>(loop.model().parameter_count());
  plan::Traffic traffic{.lanes = loop.engine().lanes().lanes};
  std::vector<double> buckets;
  for (const auto& bucket : loop.engine().buckets()) buckets.push_back(static_cast<double>(bucket->bytes()));
  traffic.buckets = plan::most_in_flight(buckets, traffic.lanes);
  for (const auto& block : loop.model().blocks()) {
    double bytes = 0;
    for (const auto& [name, p] : loop.model().named_parameters(block)) bytes += static_cast<double>(p.numel()) * sizeof(float);
    traffic.largest_block = std::max(traffic.largest_block, bytes);
  }
  const plan::StateSizes recipe{.name = "fp32", .parameter = 4, .gradient = 4, .optimizer = 4 * states};
  const auto elements = static_cast<double>(loop.model().parameter_count());
  return plan::held_bytes(recipe, w.stage, ranks, elements, traffic);
}

std::string lines(const Job& job, const MemoryTaskOptions& w, const std::array<double, kMemoryClasses>& formula, double sum) {
  std::string text;
  double whole = 0;
  const auto line = [&](std::string_view what, double expected, double measured) {
    text +=
        nlohmann::ordered_json{
            {"stage", w.stage}, {"ranks", job.size()}, {"class", what}, {"formula_bytes", expected}, {"measured_bytes", measured}}
            .dump() +
        "\n";
  };
  for (const MemoryClass which : kClasses) {
    double most = static_cast<double>(Ledger::process().of(which).peak);
    job.comm().all_reduce(collective::piece(std::span(&most, 1)), collective::Op::max, {.name = "the most of a class"});
    const double expected = formula[static_cast<std::size_t>(which)];
    if (expected > 0 || most > 0) line(memory_class_name(which), expected, most);
    whole += expected;
  }
  job.comm().all_reduce(collective::piece(std::span(&sum, 1)), collective::Op::average, {.name = "Pss"});
  line("sum", whole, sum);
  return text;
}

// Without an engine: the communicator would keep its memory for the real one, and it would not be counted.
void warm_up(const std::string& model_spec, std::int64_t batch) {
  nn::Model model = nn::make_model(model_spec, 1);
  model.train();
  model.forward(model.example(batch)).sum().backward();
}

int measure(const MemoryTaskOptions& w) {
  at::set_num_threads(1);
  const Job job = init();
  plan::forecast::KernelTimings kernels(plan::forecast::Device{1, 1});
  const nn::Input input = plan::forecast::input_of(w.model, kernels);
  train::RankStatus status;
  const auto trained = [&](const std::string& model) {
    auto loop = std::make_unique<train::TrainLoop>(job.comm(), config_of(w, model, input), 1, job.local_size(), status);
    for (int i = 0; i < w.steps; ++i) loop->train_step();
    return loop;
  };
  warm_up(shallow(w.model), w.batch);
  const double before = settled_pss(job);
  Ledger::process().restart_peaks();
  const auto loop = trained(w.model);
  const double held = settled_pss(job) - before;
  const std::string text = lines(job, w, formulas(w, *loop, job.size()), held);
  if (job.rank().value != 0) return 0;
  if (w.out.empty()) return fmt::print("{}", text), 0;
  std::ofstream out(w.out, std::ios::binary);  // it may be a descriptor of the launcher's
  out << text;
  out.close();
  if (!out) throw_failure(Kind::system, "cannot write the results to {}", w.out);
  return 0;
}

int bench_memory_main(int argc, char** argv) {
  MemoryTaskOptions w;
  CLI::App app{"one rank of `cohort bench memory`", "cohort-worker bench-memory"};
  app.option_defaults()->always_capture_default();
  app.add_option("--model", w.model, "a spec of the zoo that reads tokens")->required();
  app.add_option("--optimizer", w.rule, "optimizer")->required();
  app.add_option("--stage", w.stage, "of ZeRO; 0: all_reduce");
  app.add_option("--batch", w.batch, "samples of one rank and step");
  app.add_option("--steps", w.steps, "before anything is measured");
  app.add_option("--out", w.out, "rank 0 writes its lines there; empty: stdout");
  if (!parse_command_line(app, argc, argv)) return 0;
  return measure(w);
}

}  // namespace

Task bench_memory_task() { return {"bench-memory", "one rank of `cohort bench memory`", bench_memory_main}; }

}  // namespace cohort::cli::worker
