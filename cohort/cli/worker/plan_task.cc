// cohort-worker plan: what `cohort plan` runs. As many ranks as will share this machine time the same kernels at the same time; the first
// one says what they found.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <thread>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/spec.h"
#include "cohort/cli/plan_workers.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/job/job.h"
#include "cohort/plan/report.h"
#include "cohort/train/loop/forecast.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

struct PlanTaskOptions {
  train::SettingsSource source;
  train::ForecastOptions options;
  double link = 0, latency = 0, flops = 0, membw = 0;
  std::string calibration, out;
  bool json = false;
};

// Of sync: all_reduce is stage 0.
int stage_of(const TrainConfig& config) {
  const Spec strategy = Spec::parse(config.sync);
  const auto* stage = strategy.find("stage");
  return stage == nullptr ? 0 : std::stoi(stage->value);
}

int plan(PlanTaskOptions w) {
  TrainConfig config = train::read_settings(w.source);
  const Job job = init();
  w.options.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  w.options.threads = config.threads > 0 ? config.threads : std::max(1, w.options.cores / std::max(1, w.options.ranks));
  if (w.link > 0) w.options.link_speed = plan::LinkSpeed{w.link, w.latency};
  if (w.flops > 0) w.options.device = plan::forecast::Device{w.flops, w.membw};
  const std::string constants = collective::find_calibration(w.calibration, "shm");
  if (!constants.empty()) w.options.constants = collective::Calibration::load(constants);
  w.options.all_ways = w.out.empty();
  const plan::PlanInput plan_input = train::gather_plan_input(config, w.options);
  if (job.rank().value != 0) return 0;
  if (!w.out.empty()) {
    std::filesystem::create_directories(std::filesystem::path(w.out).parent_path());
    write_file_atomically(w.out, plan::forecast_json(plan_input, plan::choice(plan_input, stage_of(config), plan_input.profiles[0])));
    return 0;
  }
  const auto all = plan::choices(plan_input);
  fmt::print("{}", w.json ? plan::plan_lines(plan_input, all) : plan::plan_text(plan_input, all));
  if (plan::anything_fits(plan_input, all)) return 0;
  if (w.json) fmt::print(stderr, "cohort plan: {}", plan::verdict(plan_input, all));
  return kNothingFits;
}

int plan_main(int argc, char** argv) {
  PlanTaskOptions w;
  CLI::App app{"what `cohort plan` runs", "cohort-worker plan"};
  app.add_option("config", w.source.file, "YAML file with settings");
  app.add_option("--set", w.source.sets, "key=value")->expected(1)->take_all();
  app.add_option("--ranks", w.options.ranks)->check(CLI::Range(1, 1'000'000));
  app.add_option("--memory", w.options.memory, "bytes");
  app.add_option("--link", w.link, "bytes a second");
  app.add_option("--latency", w.latency, "seconds");
  app.add_option("--flops", w.flops);
  app.add_option("--membw", w.membw, "bytes a second");
  app.add_option("--calibration", w.calibration, "folder or file of measured constants");
  app.add_option("--out", w.out, "writes the forecast of the settings as they are, for a run to be compared with");
  app.add_flag("--json", w.json);
  if (!parse_command_line(app, argc, argv)) return 0;
  return plan(std::move(w));
}

}  // namespace

Task plan_task() { return {"plan", "what `cohort plan` runs", plan_main}; }

}  // namespace cohort::cli::worker
