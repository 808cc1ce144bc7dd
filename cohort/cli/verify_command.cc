// cohort verify: the same step on one rank and on many, compared tensor by tensor.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/bench/process.h"
#include "cohort/bench/progress_line.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/plugins.h"
#include "cohort/cli/verify_compare.h"
#include "cohort/cli/verify_options.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/worker_program.h"

namespace cohort::cli {
namespace {

constexpr double kLeastShift = 1e-300;  // where all gradients are zero
constexpr const char* kReferenceSync = "all_reduce(op=sum)";

struct Run {
  int ranks = 1;
  std::string sync;
  std::string folder;
};

// The first line in which a rank says why it ended.
std::string cause(const bench::Outcome& o) {
  constexpr std::string_view kOwn = "cohort verify: ";
  for (const auto line : split(o.err, '\n'))
    if (const auto at = line.find(kOwn); at != line.npos) return std::string(line.substr(at + kOwn.size()));
  return o.last_line().empty() ? "it printed nothing" : std::string(o.last_line());
}

// shift: of gradients; 0: none.
void perform(const VerifyOptions& o, const TrainConfig& config, const Run& run, bool reference, double shift = 0) {
  bench::CommandLine p{{std::filesystem::read_symlink("/proc/self/exe").string(), "run", "-n", std::to_string(run.ranks), "--no-prefix",
                        "--quiet", "--", launch::find_worker(), "verify"},
                       {{"OMP_NUM_THREADS", "1"}}};
  auto& words = p.argv;
  if (!o.source.file.empty()) words.push_back(o.source.file);
  auto sets = o.source.sets;
  for (auto& set : settings_of_run(o, config, run.ranks, run.sync)) sets.push_back(std::move(set));
  if (!reference) sets.insert(sets.end(), o.changes.begin(), o.changes.end());
  for (const auto& set : sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--out", run.folder, "--steps", std::to_string(o.steps)});
  if (o.float64) words.emplace_back("--float64");
  if (shift > 0) words.insert(words.end(), {"--shift", fmt::format("{}", shift)});
  if (o.plant_error >= 0 && !reference) words.insert(words.end(), {"--plant-error", std::to_string(o.plant_error)});
  const auto ended = bench::run_process(p, Deadline::in(Seconds{o.timeout}));
  if (ended.ok()) return;
  const auto who = fmt::format("{} on {} rank{}", run.sync, run.ranks, run.ranks == 1 ? "" : "s");
  if (ended.late) throw_failure(Kind::timeout, "{} did not end within {}; --timeout gives more", who, format_seconds(Seconds{o.timeout}));
  throw_failure(ended.status == launch::kExitUsage ? Kind::usage : Kind::system, "{}: {}", who, cause(ended));
}

nlohmann::ordered_json json_of(const Run& run, const Comparison& c, double tolerance) {
  nlohmann::ordered_json line{{"ranks", run.ranks},       {"sync", run.sync},         {"what", c.what},      {"tensors", c.tensors},
                              {"bit_equal", c.bit_equal}, {"largest", c.largest},     {"scale", c.scale},    {"relative", c.relative()},
                              {"tolerance", tolerance},   {"amplified", c.amplified}, {"within", c.within()}};
  if (c.first)
    line["first"] = {{"tensor", c.first->tensor},
                     {"index", c.first->index},
                     {"reference", c.first->reference},
                     {"value", c.first->value},
                     {"ulps", c.first->ulps}};
  return line;
}

std::string verdict(const Comparison& c) {
  if (!c.within()) return "DIFFERS";
  if (c.amplified > 0)
    return fmt::format("ok; {} entr{} by what the rule makes of gradients within the tolerance", c.amplified,
                       c.amplified == 1 ? "y" : "ies");
  return c.bit_equal == c.tensors ? "same bits" : "ok";
}

void print_table(const Run& run, const std::vector<Comparison>& all) {
  fmt::print("{} rank{}, {}\n", run.ranks, run.ranks == 1 ? "" : "s", run.sync);
  for (const Comparison& c : all)
    fmt::print("  {:<9} {:>5} of {:<5} {:>12.3g} {:>12.3g}  {}\n", c.what, c.bit_equal, c.tensors, c.largest, c.relative(), verdict(c));
  for (const Comparison& c : all)
    if (c.first)
      fmt::print("  first difference of {}: {}[{}]: {} with one rank, {} here, {} apart ({:.0f} ulps); the largest, {:.3g}, is in {}\n",
                 c.what, c.first->tensor, fmt::join(c.first->index, ", "), c.first->reference, c.first->value,
                 std::abs(c.first->reference - c.first->value), c.first->ulps, c.largest, c.where);
}

int verify(const VerifyOptions& o) {
  const TrainConfig config = read_settings(o.source);
  const auto batch = shared_batch(o, config);
  std::unique_ptr<TempDir> temporary;
  if (o.keep.empty()) temporary = std::make_unique<TempDir>("cohort-verify");
  const std::string folder = temporary ? temporary->path() : o.keep;
  if (!temporary && std::filesystem::exists(folder)) throw_failure(Kind::usage, "--keep {}: it is there already", folder);
  bench::ProgressLine progress(bench::ProgressLine::Elsewhere::silent);
  const Run reference{1, kReferenceSync, folder + "/reference"};
  progress.show("one rank, the reference", 0);
  perform(o, config, reference, true);
  progress.show("one rank, gradients off by the tolerance", 0);
  perform(o, config, reference, true, std::max(o.most() * largest_gradient(reference.folder), kLeastShift));
  if (!o.json) {
    progress.clear();
    fmt::print("{}: global batch {}, {} step{}, {}, at most {} of the largest entry\n  {:<9} {:<14} {:>12} {:>12}\n", config.model, batch,
               o.steps, o.steps == 1 ? "" : "s", o.float64 ? "f64" : "f32", o.most(), "", "same bits", "largest", "of largest");
  }
  bool fine = true;
  const double total = static_cast<double>(o.ranks.size() * o.syncs.size()) + 1;
  int done = 1;
  for (const auto& sync : o.syncs)
    for (const int ranks : o.ranks) {
      const Run run{ranks, sync, fmt::format("{}/{}", folder, done)};
      progress.show(fmt::format("{} on {} ranks", sync, ranks), done++ / total);
      perform(o, config, run, false);
      const auto all = compare_runs(reference.folder, run.folder, o.most());
      if (temporary) remove_tree(run.folder);
      progress.clear();
      if (!o.json) print_table(run, all);
      for (const Comparison& c : all) {
        fine = fine && c.within();
        if (o.json) fmt::print("{}\n", json_of(run, c, o.most()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      }
      std::fflush(stdout);
    }
  return fine ? 0 : launch::kExitFailure;
}

int run(int argc, char** argv) {
  auto options = parse_verify(argc, argv);
  if (options) add_plugins(options->source, options->plugins);
  return options ? verify(*options) : 0;
}

}  // namespace

Command verify_command() { return {"verify", "whether many ranks do what one would", run}; }

}  // namespace cohort::cli
