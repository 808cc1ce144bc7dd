#include "cohort/bench/step/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/model_sizes.h"
#include "cohort/base/spec.h"
#include "cohort/base/text.h"
#include "cohort/plan/recompute_choice.h"

namespace cohort::bench {
namespace {

constexpr int kWarm = 5, kSteps = 30;  // of a model about which nothing is known

constexpr std::string_view kFooter =
    "Implementations train the same network on the same data with the same batch, rate and number of steps, one thread a rank, as fresh\n"
    "processes, one implementation at a time, in an order that rotates from round to round. docs/bench.md says what each number means.\n\n"
    "examples:\n"
    "  cohort bench step --model mlp -n 2 --batch 64 --against torch-ddp,unsynced\n"
    "  cohort bench step --model gpt-50m --sync 'zero(stage=3)' -n 2 --batch 4 --against torch-fsdp2,unsynced\n"
    "  cohort bench step --model gpt-50m --sync 'zero(stage=1, buddy=true)' -n 2 --batch 4 --against plain\n"
    "  cohort bench step --model 'gpt(vocab=64, d=64, heads=2, layers=2)' -n 2 --batch 8 --against unsynced --json\n"
    "  cohort bench step --model mlp -n 2 --rounds 40 --against previous --previous ../before/build/bin --require 0.98";

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (const auto part : split(list, ',')) words.emplace_back(trim(part));
  return words;
}

void check(const StepOptions& o) {
  static constexpr std::string_view kKnown[] = {"torch-ddp", "torch-zero1", "torch-fsdp2", "unsynced", "norms", "plain", "previous"};
  for (const auto& who : o.against)
    if (std::find(std::begin(kKnown), std::end(kKnown), who) == std::end(kKnown)) throw_unknown("implementation", who, kKnown);
  for (const int n : o.ranks)
    if (n < 1 || n > 4096) throw_failure(Kind::usage, "-n {}: between 1 and 4096 ranks", n);
  const bool asks_previous = std::ranges::find(o.against, "previous") != o.against.end();
  if (asks_previous && o.previous.empty())
    throw_failure(Kind::usage, "--against previous: say where the other build's programs are, --previous FOLDER/build/bin");
  if (!asks_previous && !o.previous.empty()) throw_failure(Kind::usage, "--previous {} without --against previous", o.previous);
  if (o.require > 0 && o.against.empty())
    throw_failure(Kind::usage, "--require {} without --against: there is nothing to compare with", o.require);
  if (!(o.require >= 0) || o.require > 1000) throw_failure(Kind::usage, "--require {}: between 0 and 1000", o.require);
  if (o.batch < 1 || o.batch > 1'000'000) throw_failure(Kind::usage, "--batch {}: between 1 and a million samples", o.batch);
  if (o.rounds < 1 || o.rounds > 1000) throw_failure(Kind::usage, "--rounds {}: between 1 and 1000", o.rounds);
  if (o.warm < 0 || o.warm > 1'000'000) throw_failure(Kind::usage, "--warm {}: between 1 and a million", o.warm);
  if (o.steps < 0 || o.steps > 1'000'000) throw_failure(Kind::usage, "--steps {}: between 1 and a million", o.steps);
  if (!(o.lr >= 0) || o.lr > 1000) throw_failure(Kind::usage, "--lr {}: between 0 and 1000", o.lr);
  if (o.tokens < 0 || o.tokens > 1'000'000) throw_failure(Kind::usage, "--tokens {}: between 1 and a million", o.tokens);
  Spec::parse(o.sync);
  RecomputeChoice::parse(o.recompute);
  Spec::parse(o.spec());  // the worker would refuse it too, but later
}

}  // namespace

const StepModel* step_model_named(std::string_view word) {
  const auto* at = std::find_if(std::begin(kStepModels), std::end(kStepModels), [&](const StepModel& m) { return m.word == word; });
  return at == std::end(kStepModels) ? nullptr : at;
}

std::string StepOptions::spec() const {
  const StepModel* known = step_model_named(model);
  return known == nullptr ? model_spec_of(model) : std::string(known->spec);
}

std::string StepOptions::data_spec() const {
  const StepModel* known = step_model_named(model);
  return !data.empty() || known == nullptr ? data : std::string(known->data);
}

int StepOptions::warm_steps() const {
  const StepModel* known = step_model_named(model);
  return warm > 0 ? warm : known == nullptr ? kWarm : known->warm;
}

int StepOptions::timed_steps() const {
  const StepModel* known = step_model_named(model);
  return steps > 0 ? steps : known == nullptr ? kSteps : known->steps;
}

std::string StepOptions::rule() const {
  const StepModel* known = step_model_named(model);
  return !optimizer.empty() ? optimizer : known == nullptr ? "sgd" : std::string(known->rule);
}

std::string StepOptions::plain_sync() const {
  Spec plain = Spec::parse(sync);
  std::erase_if(plain.params, [](const Spec::Param& p) { return p.key == "buddy"; });
  return plain.to_string();
}

double StepOptions::rate() const {
  const StepModel* known = step_model_named(model);
  return lr > 0 ? lr : known == nullptr ? 0.05 : known->lr;
}

std::optional<StepOptions> parse_step_options(int argc, char** argv) {
  StepOptions o;
  std::string ranks = "2", against;
  CLI::App app{"measures whole training steps here, beside other implementations", "cohort bench step"};
  app.option_defaults()->always_capture_default();
  app.footer(std::string(kFooter));
  app.add_option("--model", o.model, "mlp, cnn, resnet18 (32 x 32), gpt-50m, or a spec of the zoo such as mlp(in=784, hidden=64)");
  app.add_option("--data", o.data, "a spec of the data module; what goes with the model when absent");
  app.add_option("-n,--ranks", ranks, "ranks to start, a list");
  app.add_option("--batch", o.batch, "samples of one rank and step");
  app.add_option("--against", against,
                 "torch-ddp: torch's DistributedDataParallel over gloo; torch-zero1 and torch-fsdp2: its sharded ones (gpt-50m); "
                 "unsynced: ranks that do not communicate; norms: ours, every rank measuring its own gradient's norm too; "
                 "plain: ours without buddy copies and without recomputing; previous: another build of ours");
  app.add_option("--previous", o.previous, "folder with the other build's cohort and cohort-worker, for --against previous");
  app.add_option("--require", o.require,
                 "end with status 1 when a median ratio is less than this, or its 95 % interval (six rounds or more) does not reach 1");
  app.add_option("--sync", o.sync, "how our ranks synchronise: all_reduce(op=sum), zero(stage=1), ..");
  app.add_option("--recompute", o.recompute, "which blocks we compute again in backward: none, every(2), names(h.3), until_fits(1GiB)");
  app.add_option("--optimizer", o.optimizer, "sgd, adam, adamw, ..; what goes with the model when absent");
  app.add_option("--optim", [](const auto&) -> bool { throw_failure(Kind::usage, "--optim is called --optimizer now"); })->group("");
  app.add_option("--lr", o.lr, "learning rate; 0: what goes with the model");
  app.add_option("--tokens", o.tokens, "of one sample, for models that read tokens; 0: as many as the model can");
  app.add_option("--warm", o.warm, "steps before the timed ones; 0: what suits the model");
  app.add_option("--steps", o.steps, "timed steps of every start; 0: what suits the model");
  app.add_option("--rounds", o.rounds, "starts of every implementation");
  app.add_flag("--json", o.json, "one JSON object a line");
  app.add_flag("!--no-void-check", o.void_check, "report also when torch-ddp is slower than it is known to be here");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  o.against = words_of(against);
  o.ranks.clear();
  for (const auto& word : words_of(ranks)) o.ranks.push_back(static_cast<int>(parse_int(word)));
  check(o);
  return o;
}

}  // namespace cohort::bench
