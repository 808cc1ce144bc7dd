// cohort plan: memory and step time of a training run before it runs, for every ZeRO stage and every way of recomputing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/plan_workers.h"
#include "cohort/cli/plugins.h"
#include "cohort/plan/units.h"
#include "cohort/train/settings.h"

namespace cohort::cli {
namespace {

constexpr const char* kExamples =
    "\nexamples:\n"
    "  cohort plan configs/fashion_cnn.yaml --ranks 2                   this machine: kernels are timed here\n"
    "  cohort plan configs/text_gpt.yaml --ranks 8 --memory 2GB --link 10Gbit --latency 20us\n"
    "  cohort plan --set model=gpt-50m --set 'data.train=synthetic(task=tokens, shape=128, classes=256)' --ranks 4\n"
    "  cohort plan configs/cifar_resnet18.yaml --ranks 64 --memory 80GB --link 100Gbit --flops 60T --membw 2TB --json\n\n"
    "The model is traced with tensors that have no memory (the meta device), and every kernel it would run is timed alone: the model "
    "itself "
    "never\n"
    "runs, and may be larger than this machine. With --link ranks are taken to be machines of their own; without it they share this one.\n"
    "`cohort train --plan` prints the forecast beside what was measured. docs/plan.md explains every column.\n";

struct PlanArguments {
  std::string ranks = "1", memory, link, latency, flops, membw;
};

// The options as the worker reads them: plain numbers.
std::vector<std::string> numbers_of(const PlanArguments& w) {
  std::vector<std::string> args;
  const auto add = [&](const char* option, double value) { args.insert(args.end(), {option, fmt::format("{}", value)}); };
  if (!w.memory.empty()) add("--memory", static_cast<double>(parse_bytes(w.memory)));
  if (!w.memory.empty() && parse_bytes(w.memory) == 0) throw_failure(Kind::usage, "--memory {}: above 0, such as 80GB", w.memory);
  if (!w.link.empty()) add("--link", plan::parse_link(w.link));
  if (!w.latency.empty() && w.link.empty()) throw_failure(Kind::usage, "--latency is that of --link: say both, such as --link 100Gbit");
  if (!w.latency.empty()) add("--latency", parse_seconds(w.latency).count());
  if (w.flops.empty() != w.membw.empty())
    throw_failure(Kind::usage, "--flops and --membw go together: products run at the one speed, everything else at that of memory");
  if (!w.flops.empty()) add("--flops", plan::parse_flops(w.flops));
  if (!w.membw.empty()) add("--membw", plan::parse_membw(w.membw));
  return args;
}

int run(int argc, char** argv) {
  train::SettingsSource source;
  PlanArguments w;
  std::vector<std::string> plugins;
  bool json = false;
  CLI::App app{"memory and step time of a training run, before it runs", "cohort plan"};
  app.footer(kExamples);
  app.add_option("config", source.file, "YAML file with settings, as for `cohort train`; none: the defaults");
  app.add_option("-n,--ranks,--np", w.ranks, "ranks to plan for")->capture_default_str();
  app.add_option("--set", source.sets, "key=value, as often as needed: wins over the file")->expected(1)->take_all();
  app.add_option("--plugin", plugins, kPluginHelp)->expected(1)->take_all();
  app.add_option("--memory", w.memory, "what a rank has, such as 80GB: says what fits");
  app.add_option("--link", w.link, "speed of a rank's link, 100Gbit; none: the ranks share this machine");
  app.add_option("--latency", w.latency, "of a message over it, 5us; none: 0");
  app.add_option("--flops", w.flops, "operations a second of a rank's device, 312T; none: kernels are timed here");
  app.add_option("--membw", w.membw, "bytes a second of its memory, 2TB");
  app.add_flag("--json", json, "one JSON object a line, a choice each");
  if (!parse_command_line(app, argc, argv)) return 0;
  const auto ranks = parse_int(w.ranks);
  if (ranks < 1 || ranks > 1'000'000) throw_failure(Kind::usage, "--ranks {}: between 1 and a million", w.ranks);
  auto args = numbers_of(w);
  add_plugins(source, plugins);
  train::read_settings(source);  // what is wrong with them is said before anything starts
  if (json) args.emplace_back("--json");
  const bool alone = !w.link.empty() || !w.flops.empty();
  return plan_with_workers(source, static_cast<int>(ranks), alone, args);
}

}  // namespace

Command plan_command() { return {"plan", "memory and step time of a run, before it runs", run}; }

}  // namespace cohort::cli
