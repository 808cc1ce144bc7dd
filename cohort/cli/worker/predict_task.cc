// cohort-worker predict: what `cohort predict` runs, in one process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/text.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/data/limits.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/train/loop/prediction_csv.h"
#include "cohort/train/loop/predictor.h"

namespace cohort::cli::worker {
namespace {

struct PredictTaskOptions {
  std::string path, data, out;
  std::vector<std::string> files, plugins;
  int top = 3;
  std::int64_t limit = 0;
  bool json = false, terminal = false;  // terminal: what is printed goes to one
  data::InputLimits limits;
};

std::string dump(const PredictTaskOptions& w, const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', w.terminal, nlohmann::json::error_handler_t::replace) + "\n";
}

void print(const PredictTaskOptions& w, const std::string& file, const std::vector<train::Guess>& guesses) {
  if (w.json) {
    nlohmann::ordered_json line{{"file", file}, {"guesses", nlohmann::ordered_json::array()}};
    for (const train::Guess& g : guesses) line["guesses"].push_back({{"label", g.label}, {"name", g.name}, {"probability", g.probability}});
    return fmt::print("{}", dump(w, line));
  }
  fmt::print("{}:", printable(file, file.size()));
  for (const train::Guess& g : guesses)
    fmt::print("{} {} {:.1f} %", &g == guesses.data() ? "" : ",", printable(g.name), 100 * g.probability);
  fmt::print("\n");
}

void print(const PredictTaskOptions& w, const std::string& source, const train::Score& s) {
  std::FILE* const to = w.out.empty() && !w.json && source != w.data ? stderr : stdout;  // not among the lines of CSV
  if (w.json) {
    nlohmann::ordered_json line{{"data", source}};
    if (s.regression()) line[s.measure] = s.error;
    if (!s.regression()) line["accuracy"] = s.accuracy(), line["correct"] = s.correct;
    line["samples"] = s.samples, line["loss"] = s.loss;
    return fmt::print("{}", dump(w, line));
  }
  const std::string name = terminal_text(source);
  if (s.regression()) return fmt::print(to, "{}: {} {:.6g} ({} values), loss {:.6g}\n", name, s.measure, s.error, s.samples, s.loss);
  fmt::print(to, "{}: accuracy {:.2f} % ({} of {}), loss {:.4f}\n", name, 100 * s.accuracy(), s.correct, s.samples, s.loss);
}

bool is_set(const std::string& file) { return std::filesystem::is_directory(file) || file.ends_with(".csv") || file.ends_with(".csv.gz"); }

std::string json_line(const PredictTaskOptions& w, const std::string& source, const train::Predictor& predictor,
                      const train::Prediction& p) {
  nlohmann::ordered_json line{{"data", source}, {"row", p.place}};
  for (const train::Guess& g : p.guesses) line["guesses"].push_back({{"label", g.label}, {"name", g.name}, {"probability", g.probability}});
  const auto names = predictor.target_names();
  for (std::size_t i = 0; i < p.values.size(); ++i) line["values"][names[i]] = p.values[i];
  for (std::size_t i = 0; i < p.targets.size(); ++i) line["targets"][names[i]] = p.targets[i];
  if (!p.label.empty()) line["true"] = p.label;
  return dump(w, line);
}

// A folder or a table. With --out its lines are added to `lines`.
void predict_set(const PredictTaskOptions& w, const train::Predictor& predictor, const std::string& file, std::string& lines) {
  const auto set = predictor.open(file);
  const bool labelled = !set->form().unlabelled, first = lines.empty();
  const auto reader = w.terminal && w.out.empty() ? train::CsvFor::terminal : train::CsvFor::file;
  const auto targets = predictor.regression() ? predictor.target_names() : std::vector<std::string>{};
  const auto put = [&](const std::string& line) { w.out.empty() ? static_cast<void>(fmt::print("{}", line)) : void(lines += line); };
  if (!w.json && (w.out.empty() || first)) put(train::csv_heading(targets, std::filesystem::is_directory(file), labelled, reader));
  const train::Score score = predictor.predict(*set, {.limit = w.limit, .top = w.json ? w.top : 1}, [&](const train::Prediction& p) {
    put(w.json ? json_line(w, file, predictor, p) : train::csv_line(p, reader));
  });
  std::fflush(stdout);
  if (labelled) print(w, file, score);
}

int predict(const PredictTaskOptions& w) {
  data::set_input_limits(w.limits);
  const train::Predictor predictor(w.path, w.plugins);
  log_debug("{} of step {}, from {}", predictor.model_spec(), predictor.step(), predictor.checkpoint_path());
  if (!w.data.empty()) print(w, w.data, predictor.score(w.data, w.limit));
  int status = 0;
  std::string lines;                  // for --out
  for (const auto& file : w.files) {  // one that is no picture does not keep the others from being classified
    try {
      is_set(file) ? predict_set(w, predictor, file, lines) : print(w, file, predictor.classify(file, w.top));
    } catch (const Failure& failure) {
      std::fflush(stdout);
      fmt::print(stderr, "cohort predict: {}\n", terminal_text(failure.what()));
      status = launch::kExitFailure;
    }
  }
  if (!w.out.empty()) write_file_atomically(w.out, lines);
  std::fflush(stdout);
  return status;
}

int predict_main(int argc, char** argv) {
  PredictTaskOptions w;
  CLI::App app{"what `cohort predict` runs", "cohort-worker predict"};
  app.add_option("checkpoint", w.path)->required();
  app.add_option("files", w.files);
  app.add_option("--plugin", w.plugins)->expected(1)->take_all();
  app.add_option("--top", w.top)->check(CLI::Range(1, 1000000));
  app.add_option("--data", w.data);
  app.add_option("--out", w.out);
  app.add_option("--max-pixels", w.limits.max_pixels)->check(CLI::PositiveNumber);
  app.add_option("--max-scans", w.limits.max_scans)->check(CLI::PositiveNumber);
  app.add_option("--max-inflate-ratio", w.limits.max_inflate_ratio)->check(CLI::PositiveNumber);
  app.add_option("--limit", w.limit)->check(CLI::NonNegativeNumber);
  app.add_flag("--json", w.json);
  app.add_flag("--terminal", w.terminal);
  if (!parse_command_line(app, argc, argv)) return 0;
  return predict(w);
}

}  // namespace

Task predict_task() { return {"predict", "what `cohort predict` runs", predict_main}; }

}  // namespace cohort::cli::worker
