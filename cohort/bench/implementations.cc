#include "cohort/bench/implementations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/bench/programs.h"
#include "cohort/bench/results.h"

namespace cohort::bench {
namespace {

// A large heap that is never given back: without these Open MPI's collectives take fresh pages from the kernel at every large call.
const std::vector<std::pair<std::string, std::string>> kTunedMalloc = {
    {"MALLOC_MMAP_MAX_", "0"}, {"MALLOC_TRIM_THRESHOLD_", "4294967296"}, {"MALLOC_TOP_PAD_", "268435456"}};

bool crowded(int ranks) { return ranks > this_machine().cores; }

std::vector<std::string> common_arguments(const BenchOptions& o, const std::string& collective) {
  std::vector<std::string> args{"--collective", collective,
                                "--bytes",      fmt::format("{}", fmt::join(o.sizes, ",")),
                                "--dtype",      o.dtype,
                                "--op",         o.op,
                                "--seconds",    fmt::format("{}", o.seconds)};
  if (o.repeats > 0) args.insert(args.end(), {"--repeats", std::to_string(o.repeats)});
  return args;
}

CommandLine openmpi_program(const Implementation& c, const BenchOptions& o, const std::string& collective, int ranks) {
  CommandLine p{{"mpirun", "-n", std::to_string(ranks)}, {}};
  if (geteuid() == 0) p.argv.emplace_back("--allow-run-as-root");
  // More ranks than cores: Open MPI then yields while it waits by itself. Else one core each.
  if (crowded(ranks))
    p.argv.insert(p.argv.end(), {"--oversubscribe", "--bind-to", "none"});
  else
    p.argv.insert(p.argv.end(), {"--bind-to", "core"});
  if (c.who == "openmpi-tuned")
    for (const auto& [name, value] : kTunedMalloc) p.argv.insert(p.argv.end(), {"-x", name + "=" + value});
  p.argv.push_back(bundled_program("openmpi_bench"));
  const auto args = common_arguments(o, collective);
  p.argv.insert(p.argv.end(), args.begin(), args.end());
  return p;
}

CommandLine gloo_program(const BenchOptions& o, const std::string& collective, int ranks) {
  CommandLine p{{python_with_torch(), "-W", "ignore", bundled_program("gloo_bench.py"), "--ranks", std::to_string(ranks)}, {}};
  const auto args = common_arguments(o, collective);
  p.argv.insert(p.argv.end(), args.begin(), args.end());
  return p;
}

CommandLine our_program(const Implementation& c, BenchOptions o, const std::string& collective, int ranks, const std::string& out_path) {
  o.collectives = {collective};
  o.algorithms.clear();
  if (!c.algorithm.empty()) o.algorithms = {c.algorithm};
  o.buffers = {c.buffers};
  if (o.worker_task.empty()) o.worker_task = "measure";
  o.worker_out = out_path;
  const std::string self = "/proc/self/exe";
  CommandLine p{{self, "run", "-n", std::to_string(ranks)}, {}};
  if (!crowded(ranks)) p.argv.insert(p.argv.end(), {"--bind", "core"});  // as Open MPI's: two ranks on one core measure the scheduler
  p.argv.insert(p.argv.end(), {"--", self});
  const auto args = worker_arguments(o);
  p.argv.insert(p.argv.end(), args.begin(), args.end());
  return p;
}

std::string system_congestion() {
  try {
    return std::string(trim(read_file("/proc/sys/net/ipv4/tcp_congestion_control")));
  } catch (const Failure&) {
    return "unknown";
  }
}

// Why this one cannot take part; empty when it can.
std::string obstacle(const std::string& who, const BenchOptions& o) {
  if (o.op == "average") return "it has no average";
  if (who != "gloo") {
    if (find_executable("mpirun").empty()) return "mpirun is not installed (Debian: openmpi-bin)";
    if (bundled_program("openmpi_bench").empty()) return "openmpi_bench was not built (Debian: libopenmpi-dev, then build again)";
    if (o.dtype == "f16" || o.dtype == "bf16") return "Open MPI 4 has no 16-bit floats";
    return {};
  }
  if (bundled_program("gloo_bench.py").empty()) return "gloo_bench.py is not beside the program";
  if (o.dtype == "bool") return "torch's gloo does not reduce bool";
  if (python_with_torch().empty()) return "no Python with torch was found (set COHORT_PYTHON to one)";
  return {};
}

std::string setting(const std::string& who, const BenchOptions& o, int ranks) {
  if (who == "openmpi")
    return crowded(ranks) ? "mpirun --oversubscribe, which yields while it waits; not bound" : "mpirun --bind-to core, else as it comes";
  if (who == "openmpi-tuned") return "as openmpi, with MALLOC_MMAP_MAX_=0 and a large MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_";
  const auto sockets =
      fmt::format("torch.distributed over loopback tcp, congestion control {} (the system's; it cannot be set)", system_congestion());
  if (o.transport != "tcp" || o.congestion == system_congestion()) return sockets;
  return sockets + fmt::format("; ours is '{}': compare with --congestion {} for equal conditions", o.congestion, system_congestion());
}

}  // namespace

std::string Implementation::label() const {
  if (!ours()) return who;
  return fmt::format("cohort{}{}", algorithm.empty() ? "" : " " + algorithm, buffers == "any" ? " (any pointer)" : "");
}

Implementations select_implementations(const BenchOptions& o, const std::string& collective, int ranks) {
  static constexpr std::string_view kKnown[] = {"openmpi", "openmpi-tuned", "gloo"};
  if (!o.algorithms.empty() && collective != "all_reduce")
    throw_failure(Kind::usage, "--algorithm names rows of all_reduce; {} has none to choose", collective);
  Implementations chosen;
  for (const auto& buffers : o.buffers) {
    if (o.algorithms.empty()) chosen.implementations.push_back({"cohort", "", buffers});
    for (const auto& algorithm : o.algorithms) chosen.implementations.push_back({"cohort", algorithm, buffers});
  }
  for (const auto& who : o.against) {
    if (std::find(std::begin(kKnown), std::end(kKnown), who) == std::end(kKnown)) throw_unknown("implementation", who, kKnown);
    const auto why_not = obstacle(who, o);
    if (!why_not.empty()) {
      chosen.notes.push_back(fmt::format("{} does not take part: {}", who, why_not));
      continue;
    }
    chosen.implementations.push_back({who, "", ""});
    chosen.notes.push_back(fmt::format("{}: {}", who, setting(who, o, ranks)));
  }
  return chosen;
}

CommandLine program_of(const Implementation& c, const BenchOptions& o, const std::string& collective, int ranks,
                       const std::string& out_path) {
  if (c.ours()) return our_program(c, o, collective, ranks, out_path);
  return c.who == "gloo" ? gloo_program(o, collective, ranks) : openmpi_program(c, o, collective, ranks);
}

}  // namespace cohort::bench
