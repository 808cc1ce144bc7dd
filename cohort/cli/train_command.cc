// cohort train: checks the settings, then starts the ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <map>
#include <utility>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/store.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/launch_flags.h"
#include "cohort/cli/plan_workers.h"
#include "cohort/cli/plugins.h"
#include "cohort/collective/plugin/backend.h"
#include "cohort/launch/binding.h"
#include "cohort/launch/worker_program.h"
#include "cohort/train/settings.h"

namespace cohort::cli {
namespace {

constexpr const char* kExamples =
    "\nexamples:\n"
    "  cohort train -n 2                                        the defaults: an MLP on Fashion-MNIST\n"
    "  cohort train configs/fashion_cnn.yaml -n 2\n"
    "  cohort train configs/fashion_cnn.yaml -H h1:2,h2:2       four ranks on two hosts that share this folder\n"
    "  cohort train configs/fashion_cnn.yaml -n 4 --min-n 2      goes on when workers are lost, and replaces them\n"
    "  cohort train configs/fashion_cnn.yaml -H h1:2,h2:2 --min-n 2      the same when a host is lost\n"
    "  cohort train -n 2 --set model=cnn --set epochs=3 --set 'optimizer=adamw(lr=1e-3)'\n"
    "  cohort train configs/fashion_cnn.yaml -n 2 --set checkpoint.resume=never --out runs/again\n\n"
    "A run writes into its folder: config.yaml, metrics.jsonl, checkpoints/, tensorboard/, report.html and, with observe.trace, "
    "trace.json.\n"
    "Started again it goes on from its newest checkpoint. `cohort train --help-config` explains every setting.\n";

constexpr Seconds kRecoveryLimit{120};  // survivors of a lost rank rendezvous again, then write the state of all

elastic::HeldState held_state(const TrainConfig& config) {
  if (!train::shards_state(config)) return elastic::HeldState::whole;
  return train::has_buddy_copies(config) ? elastic::HeldState::shard_and_buddy : elastic::HeldState::shard;
}

// What a run that is started again goes on from. Not by a Store, which makes the folder and tidies it up.
std::string newest_checkpoint(const TrainConfig& config) {
  if (config.checkpoint.resume == "never") return "";
  std::map<std::int64_t, std::string> found;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder(config) + "/checkpoints", problem)) {
    const auto step = checkpoint::step_of_name(entry.path().filename().string());
    if (step) found.emplace(*step, entry.path().string());
  }
  while (!found.empty()) {
    const auto [step, path] = *found.rbegin();
    found.erase(step);
    try {
      checkpoint::read_manifest(path, step);
      return path;
    } catch (const Failure&) {  // damaged: the one before counts
    }
  }
  return "";
}

// Hosts say how many ranks there are, unless -n does; without hosts it is one.
void set_default_ranks(launch::LaunchOptions& options, bool given) {
  const bool here = options.hosts.empty() && options.host_file.empty() && options.discovery_script.empty();
  if (given || !here) return;
  options.ranks = "1";
  options.ranks_given = true;
}

// How many ranks to plan for. Of hosts that are still to be found: one.
int planned_ranks(const launch::LaunchOptions& options) {
  return options.ranks == "auto" ? launch::usable_cores(launch::read_host_topology()) : static_cast<int>(parse_int(options.ranks));
}

// Nothing is saved on Ctrl-C, which somebody presses who wants the prompt back; SIGTERM ends with a checkpoint.
void tell_interrupted(const TrainConfig& config) {
  const auto newest = newest_checkpoint(config);
  fmt::print(stderr, "cohort train: interrupted; {}. `kill -TERM` of this process would have saved first\n",
             newest.empty() ? "there is no checkpoint to go on from" : fmt::format("started again it goes on from {}", newest));
}

int train_with(const train::SettingsSource& source, const TrainConfig& config, launch::LaunchOptions options) {
  if (options.elastic()) train::check_elastic(config);
  std::vector<std::string> args{"train"};
  if (!source.file.empty()) args.push_back(source.file);
  for (const auto& set : source.sets) args.insert(args.end(), {"--set", set});
  const bool recovers = train::has_buddy_copies(config) && !options.elastic();
  const int status = launch::run_workers(std::move(options), args,
                                         {.preemptible = true,
                                          .recovery_limit = recovers ? kRecoveryLimit : Seconds{0},
                                          .held_state = held_state(config),
                                          .newest_checkpoint = [config] { return newest_checkpoint(config); }});
  if (status == 128 + SIGINT) tell_interrupted(config);
  return status;
}

int run(int argc, char** argv) {
  train::SettingsSource source;
  launch::LaunchOptions options = launch::default_options(group::read_environment());
  std::string out, backend, deterministic;
  std::vector<std::string> plugins;
  bool help_config = false, markdown = false, show = false, plan = false;
  CLI::App app{"train a model on several ranks, of this host or of several", "cohort train"};
  app.footer(kExamples);
  app.add_option("config", source.file, "YAML file with settings; none: the defaults");
  app.add_option("--set", source.sets, "key=value, as often as needed: wins over the file")->expected(1)->take_all();
  app.add_option("--backend", backend,
                 fmt::format("who moves gradients: {} (the setting `backend`, docs/backends.md)", join(collective::backend_names(), ", ")));
  app.add_option("--deterministic", deterministic, "true or false (the setting `deterministic`); every --backend but native needs false");
  app.add_option("-o,--out", out, "folder of the run (the setting `out`)");
  app.add_option("--plugin", plugins, kPluginHelp)->expected(1)->take_all();
  app.add_flag("--plan", plan, "predict memory and step time first, and compare them with what is measured (the setting observe.plan)");
  app.add_flag("--help-config", help_config, "every setting with its type, range, default and meaning");
  app.add_flag("--markdown", markdown, "--help-config as the reference page docs/settings.md");
  app.add_flag("--show-config", show, "print the settings in effect and where each comes from, and stop");
  add_launch_flags(app, options,
                   {"-n",
                    "--hosts",
                    "--hostfile",
                    "--host-discovery-script",
                    "--slots-per-host",
                    "--min-n",
                    "--max-n",
                    "--respawns",
                    "--lost-after",
                    "--settle-limit",
                    "--wait-limit",
                    "--quorum",
                    "--host-cool-down",
                    "--discovery-interval",
                    "--supervised",
                    "--start-timeout",
                    "--stop-grace",
                    "--interface",
                    "--tls",
                    "--ssh",
                    "--ssh-port",
                    "--ssh-identity-file",
                    "--agent"});
  if (!parse_command_line(app, argc, argv)) return 0;
  TrainConfig preset;
  if (markdown)
    return fmt::print("# Settings of `cohort train`\n\nWritten by `cohort train --markdown`.\n\n{}", Config(preset).markdown()), 0;
  if (help_config) return fmt::print("{}", Config(preset).help()), 0;
  for (const auto& [key, value] : {std::pair{"out", out}, {"backend", backend}, {"deterministic", deterministic}})
    if (!value.empty()) source.sets.push_back(fmt::format("{}={}", key, value));
  if (plan) source.sets.emplace_back("observe.plan=true");
  add_plugins(source, plugins);
  const TrainConfig config = train::read_settings(source);  // what is wrong with them is said before anything starts
  if (show) return fmt::print("{}", train::show_settings(source)), 0;
  set_default_ranks(options, app.count("--ranks") > 0);
  if (config.observe.plan)
    if (const int status = plan_with_workers(source, planned_ranks(options), false, {"--out", train::forecast_file(config)}); status != 0)
      return status;
  return train_with(source, config, std::move(options));
}

}  // namespace

Command train_command() { return {"train", "train a model on several ranks", run}; }

}  // namespace cohort::cli
