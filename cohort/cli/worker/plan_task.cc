// cohort-worker plan: what `cohort plan` runs. As many ranks as will share this machine time the same kernels at the same time; the first
// one says what they found.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/spec.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/collective/calibrated.h"
#include "cohort/plan/report.h"
#include "cohort/train/forecast/forecast.h"
#include "cohort/train/job.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

struct PlanWanted {
  SettingsSource source;
  forecast::Asked asked;
  double link = 0, latency = 0, flops = 0, membw = 0;
  std::string calibration, out;
  bool json = false;
};

// Of engine.strategy: all_reduce is stage 0.
int stage_of(const TrainConfig& config) {
  const Spec strategy = Spec::parse(config.engine.strategy);
  const auto* stage = strategy.find("stage");
  return stage == nullptr ? 0 : std::stoi(stage->value);
}

int plan(PlanWanted w) {
  TrainConfig config = read_settings(w.source);
  const Job job = init();
  w.asked.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  w.asked.threads = config.threads > 0 ? config.threads : std::max(1, w.asked.cores / std::max(1, w.asked.ranks));
  if (w.link > 0) w.asked.wire = plan::Wire{w.link, w.latency};
  if (w.flops > 0) w.asked.device = forecast::Device{w.flops, w.membw};
  const std::string constants = collective::find_calibration(w.calibration, "shm");
  if (!constants.empty()) w.asked.constants = collective::Calibration::load(constants);
  w.asked.all_ways = w.out.empty();
  const plan::Facts facts = forecast::find_facts(config, w.asked);
  if (job.rank().value != 0) return 0;
  if (!w.out.empty()) {
    std::filesystem::create_directories(std::filesystem::path(w.out).parent_path());
    write_file_atomically(w.out, plan::forecast_json(facts, plan::choice(facts, stage_of(config), facts.walks[0])));
    return 0;
  }
  const auto all = plan::choices(facts);
  fmt::print("{}", w.json ? plan::plan_lines(facts, all) : plan::plan_text(facts, all));
  return 0;
}

int plan_main(int argc, char** argv) {
  PlanWanted w;
  CLI::App app{"what `cohort plan` runs", "cohort-worker plan"};
  app.add_option("config", w.source.file, "YAML file with settings");
  app.add_option("--set", w.source.sets, "key=value")->expected(1)->take_all();
  app.add_option("--ranks", w.asked.ranks)->check(CLI::Range(1, 1'000'000));
  app.add_option("--memory", w.asked.memory, "bytes");
  app.add_option("--link", w.link, "bytes a second");
  app.add_option("--latency", w.latency, "seconds");
  app.add_option("--flops", w.flops);
  app.add_option("--membw", w.membw, "bytes a second");
  app.add_option("--calibration", w.calibration, "folder or file of measured constants");
  app.add_option("--out", w.out, "writes the forecast of the settings as they are, for a run to be held against");
  app.add_flag("--json", w.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return fmt::print("{}", app.help()), 0;
  } catch (const CLI::ParseError& error) {
    throw_failure(Kind::usage, "{}", error.what());
  }
  return plan(std::move(w));
}

}  // namespace

Task plan_task() { return {"plan", "what `cohort plan` runs", plan_main}; }

}  // namespace cohort::cli::worker
