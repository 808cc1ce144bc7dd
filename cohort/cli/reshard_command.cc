// cohort reshard: a checkpoint for another number of ranks or another stage, or as one plain file. No torch, no model code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/text.h"
#include "cohort/bench/progress_line.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/cli/cli.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::cli {
namespace {

constexpr const char* kFooter =
    "\nexamples:\n"
    "  cohort reshard runs/gpt runs/gpt8/checkpoints --ranks 8 --stage 3     then: cohort train .. -n 8 -o runs/gpt8\n"
    "  cohort reshard runs/gpt/checkpoints/step-00001200 /mnt/a --stage 0    one file for the model, one for the optimizer\n"
    "  cohort reshard runs/gpt model.safetensors --consolidate               one plain file, for Python and everything else\n\n"
    "Loading does not need it: `cohort train` takes up what any number of ranks at any stage saved. It makes files for other places.\n"
    "FROM is a checkpoint's folder, or a run's (its newest checkpoint). TO gets a folder of the same step's name inside, unless it has "
    "that\n"
    "name itself; nothing is overwritten. Stage 0 writes whole files; 1 and 2 cut the optimizer's state into a file a rank; 3 the model "
    "too.\n"
    "Every piece is compared with its SHA-256 on the way. One that is changed, missing, exchanged or cut short is refused with its name,\n"
    "offset and expected digest, and nothing is left in TO. Exit status 0 when all of it is on disk, 1 when not, 2 for wrong options.\n";

volatile std::sig_atomic_t stopped = 0;  // by which signal
void on_signal(int number) { stopped = number; }

struct ReshardOptions {
  std::string from, to;
  checkpoint::Layout layout;
  bool consolidate = false, optimizer = false, json = false;
};

void say(const ReshardOptions& w, const checkpoint::Checkpoint& from, const checkpoint::ReshardResult& made) {
  if (w.json) {
    const nlohmann::ordered_json line{{"from", from.path},   {"to", made.path},         {"step", from.manifest.step},
                                      {"files", made.files}, {"tensors", made.tensors}, {"pieces", made.pieces},
                                      {"bytes", made.bytes}};
    return fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  fmt::print("{}: step {}, {} tensors, {} in {} file{}\n", made.path, from.manifest.step, made.tensors, format_bytes(made.bytes),
             made.files, made.files == 1 ? "" : "s");
}

int work(const ReshardOptions& w) {
  const auto from = checkpoint::open_checkpoint(w.from);
  bench::ProgressLine line(bench::ProgressLine::Elsewhere::silent);
  int shown = -1;
  const auto progress = [&](std::uint64_t done, std::uint64_t of) {
    if (stopped != 0) throw_failure(Kind::aborted, "stopped; nothing is left of it");
    const double share = of == 0 ? 1 : static_cast<double>(done) / static_cast<double>(of);
    if (const int percent = static_cast<int>(100 * share); percent != std::exchange(shown, percent))
      line.show(fmt::format("{} of {}", format_bytes(done), format_bytes(of)), share);
  };
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  const auto made = w.consolidate ? consolidate(from, w.to, w.optimizer, progress) : reshard(from, w.to, w.layout, progress);
  line.clear();
  say(w, from, made);
  return 0;
}

int run(int argc, char** argv) {
  ReshardOptions w;
  CLI::App app{"write a checkpoint anew for another number of ranks or another ZeRO stage", "cohort reshard"};
  app.footer(kFooter);
  app.add_option("from", w.from, "a checkpoint's folder, or a run's")->required();
  app.add_option("to", w.to, "folder to write into; with --consolidate the file to write")->required();
  auto* ranks = app.add_option("-n,--ranks", w.layout.ranks, "ranks to cut for")->capture_default_str();
  auto* stage = app.add_option("-s,--stage", w.layout.stage, "ZeRO stage to lay out for: 0, 1, 2 or 3");
  auto* one = app.add_flag("--consolidate", w.consolidate, "write the model as one plain safetensors file instead");
  app.add_flag("--optimizer", w.optimizer, "with --consolidate: its state too, as <parameter>/<state>")->needs(one);
  app.add_flag("--json", w.json, "say what was written as a JSON object");
  one->excludes(ranks)->excludes(stage);
  if (!parse_command_line(app, argc, argv)) return 0;
  if (!w.consolidate && stage->count() == 0) throw_failure(Kind::usage, "say what to write: --stage 0 to 3 with --ranks, or --consolidate");
  try {
    return work(w);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::aborted || stopped == 0) throw;
    fmt::print(stderr, "cohort reshard: {}\n", terminal_text(failure.what()));
    return launch::kExitSignalBase + stopped;
  }
}

}  // namespace

Command reshard_command() { return {"reshard", "a checkpoint for another number of ranks", run}; }

}  // namespace cohort::cli
