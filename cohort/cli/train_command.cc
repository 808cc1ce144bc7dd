// cohort train: checks the settings, then starts the ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/plan_workers.h"
#include "cohort/cli/run_binding.h"
#include "cohort/cli/worker_program.h"
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
    "  cohort train -n 2 --set model=cnn --set epochs=3 --set 'optim.rule=adamw(lr=1e-3)'\n"
    "  cohort train configs/fashion_cnn.yaml -n 2 --set checkpoint.resume=never --out runs/again\n\n"
    "A run writes into its folder: config.yaml, metrics.jsonl, checkpoints/, tensorboard/, report.html and, with observe.trace, "
    "trace.json.\n"
    "Started again it goes on from its newest checkpoint. `cohort train --help-config` explains every setting.\n";

constexpr Seconds kRescue{120};  // survivors meet, then write what they and the lost rank had

group::Holding holding_of(const TrainConfig& config) {
  if (!shards_state(config)) return group::Holding::whole;
  return keeps_buddies(config) ? group::Holding::shard_and_buddy : group::Holding::shard;
}

// What `cohort run` understands, too, and is told as it is.
struct Passed {
  const char *names, *about;
};
constexpr Passed kPassed[] = {
    {"-H,--hosts", "several hosts, h1:2,h2:2, reached by ssh; without -n every slot gets a rank"},
    {"--hostfile", "the same from a file, `h1 slots=2` a line; `cohort run --help` tells more"},
    {"--host-discovery-script", "the same from a program; with --min-n it is asked again and again"},
    {"--slots-per-host", "ranks of a host that is named without a number (1)"},
    {"--min-n,--min-np", "elastic: workers may be lost and come while it trains; below so many it waits for more"},
    {"--max-n,--max-np", "elastic: at most so many train at a time (as many as -n says)"},
    {"--respawns", "elastic: lost workers that are replaced, in all (ten times -n)"},
    {"--lost-after", "elastic: a worker that is silent for so long is left behind (2s)"},
    {"--settle-limit", "elastic: a worker that has not got the state so long after a change is left behind (2min)"},
    {"--wait-limit,--elastic-timeout", "elastic: below --min-n workers the job waits so long, then gives up (10min)"},
    {"--quorum", "elastic: who goes on after a loss: minimum, --min-n workers; majority, and more than half of the last ones"},
    {"--host-cool-down", "elastic: a host that was lost gets no workers for so long, twice as long each time (10s)"},
    {"--discovery-interval", "elastic: between two questions to the --host-discovery-script (1s)"},
    {"--start-timeout", "how long ranks may take to meet (30s)"},
    {"--stop-grace", "after a signal from you, from forwarding it to SIGKILL (30s)"},
    {"--interface", "network interface for ranks and rendezvous; found out when not given"},
    {"--ssh", "remote shell, with options of its own (COHORT_SSH, else ssh)"},
    {"-p,--ssh-port", "port of ssh on the other hosts"},
    {"-i,--ssh-identity-file", "key for ssh"},
    {"--agent", "cohort on the other hosts (the same path as here)"},
};

int run(int argc, char** argv) {
  SettingsSource source;
  std::string ranks = "1", out, comm, bits;
  std::map<std::string, std::string> passed;  // by the first long name of each
  bool tls = false, supervised = false, help_config = false, markdown = false, show = false, plan = false;
  CLI::App app{"train a model on several ranks, of this host or of several", "cohort train"};
  app.footer(kExamples);
  app.add_option("config", source.file, "YAML file with settings; none: the defaults");
  app.add_option("-n,--ranks,--np,--nproc-per-node", ranks, "ranks to start, or auto for one per core")->capture_default_str();
  for (const Passed& option : kPassed) {
    const std::string_view names = option.names;
    const std::string_view name = names.starts_with("--") ? names.substr(0, names.find(',')) : names.substr(names.find(',') + 1);
    app.add_option(option.names, passed[std::string(name)], option.about);
  }
  app.add_flag("--tls", tls, "encrypt what launcher and ranks say, by TLS 1.3 with a key from the job's secret (COHORT_TLS)");
  app.add_flag("--supervised", supervised, "elastic: the coordinator is started again when it is killed, and training goes on");
  app.add_option("--set", source.sets, "key=value, as often as needed: wins over the file")->expected(1)->take_all();
  app.add_option("--comm", comm, "who moves gradients: own, mpi, gloo, nccl, auto (the setting `comm`, docs/engines.md)");
  app.add_option("--bits", bits, "same or free (the setting `bits`); every --comm but own needs free");
  app.add_option("-o,--out", out, "folder of the run (the setting `out`)");
  app.add_flag("--plan", plan, "predict memory and step time first, and hold them against what is measured (the setting observe.plan)");
  app.add_flag("--help-config", help_config, "every setting with its type, range, default and meaning");
  app.add_flag("--markdown", markdown, "--help-config as the reference page docs/settings.md");
  app.add_flag("--show-config", show, "print the settings in effect and where each comes from, and stop");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return fmt::print("{}", app.help()), 0;
  } catch (const CLI::ParseError& error) {
    throw_failure(Kind::usage, "{}; `cohort train --help` lists the options", error.what());
  }
  TrainConfig preset;
  if (markdown)
    return fmt::print("# Settings of `cohort train`\n\nWritten by `cohort train --markdown`.\n\n{}", Config(preset).markdown()), 0;
  if (help_config) return fmt::print("{}", Config(preset).help()), 0;
  if (!out.empty()) source.sets.push_back("out=" + out);
  if (!comm.empty()) source.sets.push_back("comm=" + comm);
  if (!bits.empty()) source.sets.push_back("bits=" + bits);
  if (plan) source.sets.emplace_back("observe.plan=true");
  const TrainConfig config = read_settings(source);  // what is wrong with them is said before anything starts
  if (show) return fmt::print("{}", show_settings(source)), 0;
  if (config.observe.plan) {
    const int planned = ranks == "auto" ? usable_cores(look_at_host()) : static_cast<int>(parse_int(ranks));
    if (const int status = plan_with_workers(source, planned, false, {"--out", forecast_file(config)}); status != 0) return status;
  }
  std::vector<std::string> args{"train"};
  if (!source.file.empty()) args.push_back(source.file);
  for (const auto& set : source.sets) args.insert(args.end(), {"--set", set});
  std::vector<std::string> where;
  for (const auto& [name, value] : passed)
    if (!value.empty()) where.insert(where.end(), {name, value});
  if (tls) where.emplace_back("--tls");
  if (supervised) where.emplace_back("--supervised");
  const bool here = passed["--hosts"].empty() && passed["--hostfile"].empty() && passed["--host-discovery-script"].empty();
  const bool elastic = !passed["--min-n"].empty();
  const std::string count = here || app.count("--ranks") > 0 ? ranks : "";  // hosts say how many unless told otherwise
  if (elastic) check_elastic(config);
  const Seconds rescue = keeps_buddies(config) && !elastic ? kRescue : Seconds{0};
  return run_workers(count, args, {.rescue = rescue, .holding = holding_of(config), .notices = true}, where);
}

}  // namespace

Command train_command() { return {"train", "train a model on several ranks", run}; }

}  // namespace cohort::cli
