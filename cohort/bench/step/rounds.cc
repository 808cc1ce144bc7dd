#include "cohort/bench/step/rounds.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/bench/programs.h"
#include "cohort/bench/progress_line.h"
#include "cohort/launch/worker_program.h"

namespace cohort::bench {
namespace {

constexpr std::string_view kSharded = "torch_sharded.py";  // knows more than DDP
constexpr double kSlowestRate = 0.05;                      // samples per second and rank, far below anything seen: only a hang is slower

Deadline time_limit(const StepOptions& o) {
  const double samples = static_cast<double>(o.batch) * (o.warm_steps() + o.timed_steps());
  return Deadline::in(Seconds{120 + samples / kSlowestRate});
}

// As launch::find_worker() finds ours.
std::string previous_worker(const std::string& folder) {
  const auto beside = folder + "/cohort-worker", installed = folder + "/../libexec/cohort/cohort-worker";
  return std::filesystem::exists(installed) && !std::filesystem::exists(beside) ? installed : beside;
}

// Why this one cannot take part; empty when it can.
std::string obstacle(const std::string& who, const StepOptions& o) {
  if (who == "previous")
    for (const auto& program : {o.previous + "/cohort", previous_worker(o.previous)})
      if (find_executable(program).empty()) throw_failure(Kind::usage, "--previous {}: {} is no program", o.previous, program);
  if (!who.starts_with("torch-")) return {};
  const StepModel* known = step_model_named(o.model);
  if (known == nullptr) return "it knows mlp, cnn, resnet18 and gpt-50m only";
  if (who != "torch-ddp" && known->script != kSharded) return "it knows gpt-50m only";
  if (!o.data.empty()) return "it knows its own data only: leave --data out";
  if (o.rule() != known->rule) return fmt::format("it trains {} with {} only", o.model, known->rule);
  if (bundled_program(std::string(known->script)).empty()) return fmt::format("{} is not beside the program", known->script);
  if (python_with_torch().empty()) return "no Python with torch was found (set COHORT_PYTHON to one)";
  return {};
}

StepLine run_once(const std::string& who, const StepOptions& o, int ranks) {
  if (who.starts_with("torch-")) return parse_step_line(run_well(step_program(who, o, ranks, ""), time_limit(o), who, ranks).out);
  const auto make = [&](const std::string& path) { return step_program(who, o, ranks, path); };
  return parse_step_line(run_and_read(make, time_limit(o), who, ranks));
}

void print(const StepReport& report, const StepOptions& o, int ranks) {
  std::FILE* const aside = o.json ? stderr : stdout;
  if (!o.json) {
    fmt::print("step, {}, {} ranks of {} samples, {} steps, {} rounds\n{}", o.model, ranks, o.batch, o.timed_steps(), o.rounds,
               step_table(report.rows));
  }
  for (const StepRow& row : report.rows)
    if (o.json) fmt::print("{}\n", json_line(row));
  for (const auto& note : report.notes) fmt::print(aside, "  {}\n", note);
  for (const auto* lines : {&report.voids, &report.slower})
    for (const auto& line : *lines) fmt::print(aside, "{}\n", line);
  std::fflush(stdout);
}

}  // namespace

CommandLine step_program(const std::string& who, const StepOptions& o, int ranks, const std::string& out_path) {
  std::vector<std::string> common{"--batch", std::to_string(o.batch),         "--warm", std::to_string(o.warm_steps()),
                                  "--steps", std::to_string(o.timed_steps()), "--lr",   fmt::format("{}", o.rate())};
  if (o.tokens > 0) common.insert(common.end(), {"--tokens", std::to_string(o.tokens)});
  CommandLine p{{}, {{"OMP_NUM_THREADS", "1"}, {"OMP_WAIT_POLICY", "PASSIVE"}}};
  if (who.starts_with("torch-")) {
    const std::string script(step_model_named(o.model)->script);
    p.argv = {python_with_torch(), "-W", "ignore", bundled_program(script), "--ranks", std::to_string(ranks)};
    if (script == kSharded) p.argv.insert(p.argv.end(), {"--how", who.substr(std::string_view("torch-").size())});
    if (script != kSharded) p.argv.insert(p.argv.end(), {"--model", o.model});
  } else {
    const bool plain = who == "plain", previous = who == "previous";
    p.argv = {previous ? o.previous + "/cohort" : std::filesystem::read_symlink("/proc/self/exe").string(), "run", "-n",
              std::to_string(ranks)};
    if (ranks <= this_machine().cores) p.argv.insert(p.argv.end(), {"--bind", "core"});
    p.argv.insert(p.argv.end(),
                  {"--", previous ? previous_worker(o.previous) : launch::find_worker(), "bench-step", "--implementation",
                   plain || previous ? "cohort" : who, "--model", o.spec(), "--data", o.data_spec(), "--optimizer", o.rule(), "--sync",
                   plain ? o.plain_sync() : o.sync, "--recompute", plain ? "none" : o.recompute, "--out", out_path});
  }
  p.argv.insert(p.argv.end(), common.begin(), common.end());
  return p;
}

StepReport run_step_rounds(const StepOptions& o, int ranks, const Progress& progress) {
  StepReport report;
  std::vector<std::string> chosen{"cohort"};
  for (const auto& who : o.against) {
    const auto why_not = obstacle(who, o);
    if (why_not.empty()) chosen.push_back(who);
    if (!why_not.empty()) report.notes.push_back(fmt::format("{} does not take part: {}", who, why_not));
  }
  std::vector<std::vector<StepLine>> lines(chosen.size());
  std::vector<bool> out(chosen.size(), false);
  for_each_start(chosen.size(), o.rounds, [&](std::size_t who, int round, double share) {
    if (out[who]) return;
    progress(fmt::format("{} on {} ranks, round {} of {}: {}", o.model, ranks, round + 1, o.rounds, chosen[who]), share);
    try {
      lines[who].push_back(run_once(chosen[who], o, ranks));
    } catch (const Failure& failure) {
      if (who == 0) throw;
      out[who] = true;
      report.notes.push_back(fmt::format("{} is left out: {}", chosen[who], failure.what()));
    }
  });
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (out[i]) continue;
    StepRow row{.who = chosen[i], .model = o.model, .ranks = ranks, .batch = o.batch, .tokens = o.tokens};
    row.sync = i == 0 ? o.sync : chosen[i] == "plain" ? o.plain_sync() : "";
    row.recompute = i == 0 ? o.recompute : "none";
    summarize(row, lines[i]);
    if (i > 0) compare(row, lines[0], lines[i]);
    report.rows.push_back(row);
  }
  for (auto& line : compare_losses(report.rows)) report.notes.push_back(std::move(line));
  report.slower = find_slower(report.rows, o.require);
  for (const auto& who : o.against)
    if (o.require > 0 && std::ranges::find(report.rows, who, &StepRow::who) == report.rows.end())
      report.slower.push_back(fmt::format("NOT COMPARED: {} took no part", who));
  if (o.void_check) report.voids = find_voids(report.rows, this_machine());
  return report;
}

int run_step(int argc, char** argv) {
  const auto o = parse_step_options(argc, argv);
  if (!o) return 0;
  bool slower = false;
  for (const int n : o->ranks) {
    ProgressLine progress(ProgressLine::Elsewhere::silent);
    const auto report = run_step_rounds(*o, n, [&](const std::string& what, double share) { progress.show(what, share); });
    progress.clear();
    print(report, *o, n);
    slower = slower || !report.slower.empty();
  }
  if (!o->json) fmt::print("\n{}", step_legend());
  return slower ? 1 : 0;
}

}  // namespace cohort::bench
