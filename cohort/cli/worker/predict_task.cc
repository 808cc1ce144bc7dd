// cohort-worker predict: what `cohort predict` runs, in one process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/train/loop/predictor.h"

namespace cohort::cli::worker {
namespace {

struct PredictTaskOptions {
  std::string path, data;
  std::vector<std::string> files;
  int top = 3;
  std::int64_t limit = 0;
  bool json = false;
};

void print(const PredictTaskOptions& w, const std::string& file, const std::vector<train::Guess>& guesses) {
  if (w.json) {
    nlohmann::ordered_json line{{"file", file}, {"guesses", nlohmann::ordered_json::array()}};
    for (const train::Guess& g : guesses) line["guesses"].push_back({{"label", g.label}, {"name", g.name}, {"probability", g.probability}});
    return fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  fmt::print("{}:", file);
  for (const train::Guess& g : guesses) fmt::print("{} {} {:.1f} %", &g == guesses.data() ? "" : ",", g.name, 100 * g.probability);
  fmt::print("\n");
}

void print(const PredictTaskOptions& w, const train::Score& s) {
  if (w.json) {
    const nlohmann::ordered_json line{
        {"data", w.data}, {"accuracy", s.accuracy()}, {"correct", s.correct}, {"samples", s.samples}, {"loss", s.loss}};
    return fmt::print("{}\n", line.dump());
  }
  fmt::print("{}: accuracy {:.2f} % ({} of {}), loss {:.4f}\n", w.data, 100 * s.accuracy(), s.correct, s.samples, s.loss);
}

int predict(const PredictTaskOptions& w) {
  const train::Predictor predictor(w.path);
  log_debug("{} of step {}, from {}", predictor.model_spec(), predictor.step(), predictor.checkpoint_path());
  if (!w.data.empty()) print(w, predictor.score(w.data, w.limit));
  int status = 0;
  for (const auto& file : w.files) {  // one that is no picture does not keep the others from being classified
    try {
      print(w, file, predictor.classify(file, w.top));
    } catch (const Failure& failure) {
      std::fflush(stdout);
      fmt::print(stderr, "cohort predict: {}\n", failure.what());
      status = launch::kExitFailure;
    }
  }
  std::fflush(stdout);
  return status;
}

int predict_main(int argc, char** argv) {
  PredictTaskOptions w;
  CLI::App app{"what `cohort predict` runs", "cohort-worker predict"};
  app.add_option("checkpoint", w.path)->required();
  app.add_option("files", w.files);
  app.add_option("--top", w.top)->check(CLI::Range(1, 1000000));
  app.add_option("--data", w.data);
  app.add_option("--limit", w.limit)->check(CLI::NonNegativeNumber);
  app.add_flag("--json", w.json);
  if (!parse_command_line(app, argc, argv)) return 0;
  return predict(w);
}

}  // namespace

Task predict_task() { return {"predict", "what `cohort predict` runs", predict_main}; }

}  // namespace cohort::cli::worker
