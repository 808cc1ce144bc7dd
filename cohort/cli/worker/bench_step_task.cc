// cohort-worker bench-step: the options of one measured rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/cli/worker/bench_step.h"
#include "cohort/cli/worker/tasks.h"

namespace cohort::cli::worker {
namespace {

void say(const std::string& line, const std::string& path) {
  if (path.empty()) return fmt::print("{}", line);
  std::ofstream out(path, std::ios::binary);
  out << line;
  out.close();
  if (!out) throw_failure(Kind::system, "cannot write the results to {}", path);
}

int bench_step_main(int argc, char** argv) {
  StepRun r;
  CLI::App app{"one rank of `cohort bench step`", "cohort-worker bench-step"};
  app.option_defaults()->always_capture_default();
  app.add_option("--implementation", r.implementation, "cohort, norms, waits or unsynced")
      ->check(CLI::IsMember({"cohort", "norms", "waits", "unsynced"}));
  app.add_option("--model", r.model, "a spec of the zoo, mlp(in=784)")->required();
  app.add_option("--data", r.data, "a data set; empty: synthetic, of the model's shape");
  app.add_option("--batch", r.batch, "samples of one rank and step")->check(CLI::Range(1, 1'000'000));
  app.add_option("--warm", r.warm, "steps before the timed ones")->check(CLI::Range(1, 1'000'000));
  app.add_option("--steps", r.steps, "timed steps")->check(CLI::Range(1, 100'000'000));
  app.add_option("--tokens", r.tokens, "of a sample of a synthetic set; 0: as many as the model can");
  app.add_option("--optimizer", r.rule, "the optimizer's name")->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  app.add_option("--lr", r.lr, "learning rate");
  app.add_option("--seed", r.seed, "of the first weights and the order of samples");
  app.add_option("--loader-threads", r.loader_threads, "threads that make batches ahead")->check(CLI::Range(0, 64));
  app.add_option("--sync", r.strategy, "how ranks reduce gradients");
  app.add_option("--recompute", r.recompute, "which blocks are computed again in backward");
  app.add_flag("--early-update", r.early_update, "update each bucket as soon as it is reduced");
  app.add_option("--out", r.out, "rank 0 writes its line there; empty: stdout");
  if (!parse_command_line(app, argc, argv)) return 0;
  const Job job = init();
  const std::string line = run_steps(job, r);
  if (!line.empty()) say(line, r.out);
  return 0;
}

}  // namespace

Task bench_step_task() { return {"bench-step", "trains for a while and says how fast", bench_step_main}; }

}  // namespace cohort::cli::worker
