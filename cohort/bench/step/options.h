// The options of `cohort bench step`, and the models it knows by one word.
// Threads: a value. Failure: Kind::usage naming the word that is wrong. To add an option: a field here, a line in parse_step_options(); a
// model that torch is to train too: a row in kStepModels, and the same network in the script of bench/baselines/ that the row names.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::bench {

struct StepModel {
  std::string_view word;  // what people write after --model
  std::string_view spec;  // the zoo's
  std::string_view data;  // the data module's
  int warm, steps;        // about a second of window on one slow core, or a few steps
  std::string_view rule;  // the optimizer's name, and its rate
  double lr;
  std::string_view script;  // torch's side
};
inline constexpr StepModel kStepModels[] = {
    {"mlp", "mlp(in=784, hidden=512x512, out=10)", "fashion_mnist(split=train)", 50, 400, "sgd", 0.05, "torch_ddp.py"},
    {"cnn", "cnn(in=1, size=28, classes=10)", "fashion_mnist(split=train)", 20, 100, "sgd", 0.05, "torch_ddp.py"},
    {"resnet18", "resnet18(in=3, classes=10, stem=cifar)", "synthetic(shape=3x32x32, classes=10, samples=10000)", 2, 8, "sgd", 0.01,
     "torch_ddp.py"},
    {"gpt-50m", "gpt(vocab=256, context=128, d=512, heads=8, layers=16, tied=false)", "", 2, 4, "adamw", 3e-4, "torch_sharded.py"},
};
const StepModel* step_model_named(std::string_view word);  // none: a spec of the zoo

struct StepOptions {
  std::string model = "mlp";
  std::string data;  // empty: what goes with the model
  std::vector<int> ranks{2};
  std::int64_t batch = 64;  // of one rank
  int warm = 0, steps = 0;  // 0: what suits the model
  std::string optimizer;    // sgd, adamw, ..; empty: what goes with the model
  double lr = 0;            // 0: what goes with the model
  std::int64_t tokens = 0;  // of a sample, for models that read tokens; 0: as many as the model can
  std::string sync = "all_reduce(op=sum)";
  std::string recompute = "none";
  int rounds = 5;
  std::vector<std::string> against;
  std::string previous;  // a folder of programs: what the implementation `previous` is
  double require = 0;    // the least ratio
  bool json = false;
  bool void_check = true;

  std::string spec() const;
  std::string data_spec() const;  // empty: the worker makes a synthetic set of the model's shape
  int warm_steps() const;
  int timed_steps() const;
  std::string rule() const;
  std::string plain_sync() const;  // without buddy copies
  double rate() const;
};

// nullopt: --help was printed. argv[0] is "step".
std::optional<StepOptions> parse_step_options(int argc, char** argv);

}  // namespace cohort::bench
