#include "cohort/cli/verify_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <numeric>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/cli/plugins.h"
#include "cohort/cli/verify_compare.h"
#include "cohort/group/device_mesh.h"
#include "cohort/sync/strategy.h"

namespace cohort::cli {
namespace {

constexpr int kMostRanks = 64;
constexpr const char* kFooter =
    "\nexamples:\n"
    "  cohort verify configs/fashion_cnn.yaml --ranks 1,2,4\n"
    "  cohort verify --set model=mlp --ranks 2 --float64\n"
    "  cohort verify --set model=tp_mlp --set mesh=dp,tp=2 --ranks 2,4          the mesh is that of the compared runs\n"
    "  cohort verify --ranks 2 --change engine.bucket=4KiB --change engine.lanes=2      does a setting change the result?\n\n"
    "The reference is one rank with the whole batch. Every other run shares out the same samples. Compared are the parameters at the "
    "start,\n"
    "the loss, every gradient, the norm and every update. Modules are in evaluation mode (no dropout, batch norm by its running "
    "statistics)\n"
    "and the rate is constant, so that the same batch means the same step on any number of ranks.\n"
    "Exit status 0: all within the tolerance; 1: not, and the first difference is shown; 2: wrong options or settings.\n";

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (const auto part : split(text, ',')) {
    const auto n = parse_int(trim(part));
    if (n < 1 || n > kMostRanks) throw_failure(Kind::usage, "--ranks {}: numbers from 1 to {}", text, kMostRanks);
    ranks.push_back(static_cast<int>(n));
  }
  return ranks;
}

// One rank, the reference above all, has no mesh.
std::string mesh_of(const TrainConfig& config, int ranks) { return ranks == 1 ? "" : config.mesh; }
// The dp places of a run: ranks of one place take the same samples.
int sharers(const TrainConfig& config, int ranks) { return group::DeviceMesh(ranks, mesh_of(config, ranks)).size("dp"); }

}  // namespace

double VerifyOptions::most() const { return tolerance > 0 ? tolerance : float64 ? kTolerance64 : kTolerance32; }

std::vector<std::string> split_specs(std::string_view text) {
  std::vector<std::string> specs(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      specs.emplace_back();
    else
      specs.back() += c;
  }
  for (auto& spec : specs) spec = std::string(trim(spec));
  std::erase(specs, "");
  if (specs.empty()) throw_failure(Kind::usage, "--sync '{}' names no strategy", text);
  return specs;
}

std::optional<VerifyOptions> parse_verify(int argc, char** argv) {
  VerifyOptions o;
  std::string ranks = "1,2", syncs = "all_reduce";
  CLI::App app{"whether ranks that work together do what one rank would: every gradient, norm and update of a step", "cohort verify"};
  app.footer(kFooter);
  app.add_option("config", o.source.file, "YAML file with settings, as of cohort train; none: the defaults");
  app.add_option("--set", o.source.sets, "key=value, as often as needed: for all runs")->expected(1)->take_all();
  app.add_option("--change", o.changes, "key=value: for the compared runs, not for the reference")->expected(1)->take_all();
  app.add_option("--plugin", o.plugins, kPluginHelp)->expected(1)->take_all();
  app.add_option("-n,--ranks", ranks, "numbers of ranks to compare with one")->capture_default_str();
  app.add_option("--sync", syncs, "strategies to compare, as sync has them")->capture_default_str();
  app.add_option("--steps", o.steps, "steps of the update; gradients are those of the first")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--global-batch", o.global_batch, "samples of a step; 0: data.batch for each of the most ranks")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tolerance", o.tolerance, "part of the model's largest entry; 0: 1e-5, with --float64 1e-12")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--timeout", o.timeout, "seconds for one run")->capture_default_str()->check(CLI::Range(1.0, 1e6));
  app.add_flag("--float64", o.float64, "compute in double precision: what is left of a difference is a mistake");
  app.add_option("--plant-error", o.plant_error, "the rank that doubles its gradient of the model's first parameter: is it found?")
      ->check(CLI::Range(0, kMostRanks - 1));
  app.add_flag("--json", o.json, "one JSON object a line");
  app.add_option("--keep", o.keep, "folder in which what the runs wrote stays");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  o.ranks = parse_ranks(ranks);
  o.syncs = split_specs(syncs);
  for (const auto& sync : o.syncs)
    if (sync::make(sync)->semantics().identical == sync::Scope::self)
      throw_failure(Kind::usage,
                    "--sync {}: its ranks take steps of their own, which are not those of one rank; what it promises instead is in "
                    "docs/strategies.md, and cohort train shows how it learns",
                    sync);
  for (const int n : o.ranks)
    if (o.plant_error >= n) throw_failure(Kind::usage, "--plant-error {}: a run of {} ranks has no such rank", o.plant_error, n);
  return o;
}

std::int64_t shared_batch(const VerifyOptions& o, const TrainConfig& config) {
  std::int64_t most = 1;
  for (const int n : o.ranks) most = std::lcm(most, std::int64_t{sharers(config, n)});
  const std::int64_t batch = o.global_batch > 0 ? o.global_batch : most * config.data.batch * config.data.accumulate;
  for (const int n : o.ranks)
    if (batch % (std::int64_t{sharers(config, n)} * config.data.accumulate) != 0)
      throw_failure(Kind::usage, "a global batch of {} is not shared out evenly among {} ranks{}: --global-batch {}", batch, n,
                    config.data.accumulate > 1 ? fmt::format(" that accumulate {} times", config.data.accumulate) : "",
                    most * config.data.batch * config.data.accumulate);
  return batch;
}

std::vector<std::string> settings_of_run(const VerifyOptions& o, const TrainConfig& config, int ranks, const std::string& sync) {
  const std::int64_t batch = shared_batch(o, config) / sharers(config, ranks) / config.data.accumulate;
  return {fmt::format("data.batch={}", batch),
          fmt::format("steps={}", o.steps),
          fmt::format("mesh={}", mesh_of(config, ranks)),
          "epochs=0",
          "optim.schedule=constant",
          "threads=1",
          "checkpoint.keep=10",
          fmt::format("sync={}", sync)};
}

}  // namespace cohort::cli
