#include "cohort/bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cohort/base/bytes.h"
#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/net/auth/handshake.h"

namespace cohort::bench {
namespace {

constexpr std::string_view kFooter =
    "Implementations run as fresh processes, one at a time, in an order that rotates from round to round; medians over the rounds are "
    "printed "
    "with\n"
    "their spread. docs/bench.md says what each number means.\n\n"
    "examples:\n"
    "  cohort bench all_reduce -n 2,4 --size 4,1MiB,100MiB --against openmpi,openmpi-tuned,gloo\n"
    "  cohort bench all_reduce -n 4 --size 1MiB --algorithm zero_copy,staged,ring --buffers allocate,any\n"
    "  cohort bench all_reduce -n 2 --size 16MiB --transport tcp --congestion bbr --against gloo\n"
    "  cohort bench all_reduce -n 2 --explain\n"
    "  cohort bench step --help                      whole training steps\n"
    "  cohort bench codec --help                     codecs, and the link below which they pay";

void check_word(std::string_view what, std::string_view word, std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), word) == known.end()) throw_unknown(what, word, known);
}

void check(BenchOptions& o) {
  const std::vector<std::string_view> collectives(std::begin(kBenchCollectives), std::end(kBenchCollectives));
  if (o.collectives == std::vector<std::string>{"all"}) o.collectives.assign(collectives.begin(), collectives.end());
  for (const auto& collective : o.collectives) check_word("collective", collective, collectives);
  for (const int n : o.ranks)
    if (n < 1 || n > 4096) throw_failure(Kind::usage, "-n {}: between 1 and 4096 ranks", n);
  if (!collective::dtype_named(o.dtype))
    throw_failure(Kind::usage, "--dtype {}: f16, bf16, f32, f64, i8, u8, i16, i32, i64 or bool", o.dtype);
  if (!collective::op_named(o.op)) throw_failure(Kind::usage, "--op {}: sum, average, min, max or product", o.op);
  if (!collective::reducible(*collective::dtype_named(o.dtype), *collective::op_named(o.op)))
    throw_failure(Kind::usage, "--op {} does not exist for --dtype {}", o.op, o.dtype);
  const std::string_view kinds[] = {"allocate", "any"}, transports[] = {"auto", "shm", "tcp"};
  for (const auto& kind : o.buffers) check_word("kind of buffers", kind, kinds);
  check_word("transport", o.transport, transports);
  if (o.congestion != "auto" && o.transport != "tcp") throw_failure(Kind::usage, "--congestion is for tcp: add --transport tcp");
  if (o.streams != 0 && o.transport != "tcp") throw_failure(Kind::usage, "--streams is for tcp: add --transport tcp");
  if (o.rounds < 1 || o.rounds > 1000) throw_failure(Kind::usage, "--rounds {}: between 1 and 1000", o.rounds);
  if (!(o.seconds > 0) || o.seconds > 600) throw_failure(Kind::usage, "--seconds {}: above 0, at most 600", o.seconds);
  if (o.repeats < 0 || o.repeats > 1'000'000) throw_failure(Kind::usage, "--repeats {}: between 1 and a million", o.repeats);
}

// "all_reduce" and "1MiB,100MiB" alike: one word, split at commas; giving the option again adds to it.
template <class T, class Read>
void list_option(CLI::App& app, const std::string& flag, std::vector<T>& into, const std::string& about, Read read) {
  const auto take = [&into, read](const std::vector<std::string>& words) {
    into.clear();
    for (const auto& word : words)
      for (const auto part : split(word, ',')) into.push_back(read(part));
    return true;
  };
  app.add_option(flag, CLI::callback_t(take), about)->type_size(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace

std::optional<BenchOptions> parse_bench_options(int argc, char** argv) {
  BenchOptions o;
  CLI::App app{"measures collectives here, beside other implementations", "cohort bench"};
  app.option_defaults()->always_capture_default();
  app.footer(std::string(kFooter));
  const auto word = [](std::string_view part) { return std::string(trim(part)); };
  list_option(app, "collective", o.collectives,
              "all_reduce (the default), reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, barrier, send, or all",
              word);
  list_option(app, "-n,--ranks", o.ranks, "ranks to start, a list",
              [](std::string_view part) { return static_cast<int>(parse_int(trim(part))); });
  list_option(app, "--size,--sizes", o.sizes, "bytes of the largest buffer a rank holds, a list such as 4,1MiB,100MiB",
              [](std::string_view part) { return parse_bytes(part); });
  app.add_option("--dtype", o.dtype, "f16 bf16 f32 f64 i8 u8 i16 i32 i64 bool");
  app.add_option("--op", o.op, "sum average min max product");
  list_option(app, "--algorithm", o.algorithms, "rows of all_reduce to force, a list; the selector chooses when absent", word);
  list_option(app, "--buffers", o.buffers, "allocate: the communicator's own memory; any: ordinary memory; or both", word);
  app.add_option("--transport", o.transport, "auto, shm or tcp");
  app.add_option("--congestion", o.congestion, "tcp: congestion control of our sockets (others use the system's default)");
  app.add_option("--streams", o.streams, "tcp: sockets of a link; 0: auto")->check(CLI::Range(0, net::kMostStreams));
  app.add_option("--rounds", o.rounds, "starts of every implementation");
  app.add_option("--seconds", o.seconds, "of timing per size and start");
  app.add_option("--repeats", o.repeats, "samples per size and start, instead of --seconds");
  list_option(app, "--against", o.against, "openmpi, openmpi-tuned, gloo", word);
  app.add_flag("--json", o.json, "one JSON object a line");
  app.add_flag("--explain", o.explain, "print what the selector would choose for each size, and what every row would cost");
  app.add_flag("--calibrate", o.calibrate, "measure the constants of the cost model and keep them in a small file");
  app.add_option("--calibration", o.calibration, "the file of --calibrate; none: the built-in constants");
  app.add_flag("!--no-void-check", o.void_check, "report also when an implementation is slower than it is known to be here");
  app.add_option("--worker", o.worker_task, "")->group("");
  app.add_option("--worker-out", o.worker_out, "")->group("");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  check(o);
  return o;
}

std::vector<std::string> worker_arguments(const BenchOptions& o) {
  std::vector<std::string> args{"bench",        o.collectives.at(0),
                                "--size",       fmt::format("{}", fmt::join(o.sizes, ",")),
                                "--dtype",      o.dtype,
                                "--op",         o.op,
                                "--buffers",    o.buffers.at(0),
                                "--seconds",    fmt::format("{}", o.seconds),
                                "--repeats",    fmt::format("{}", o.repeats),
                                "--transport",  o.transport,
                                "--congestion", o.congestion,
                                "--streams",    fmt::format("{}", o.streams),
                                "--worker",     o.worker_task,
                                "--worker-out", o.worker_out};
  if (!o.algorithms.empty()) args.insert(args.end(), {"--algorithm", o.algorithms.at(0)});
  if (!o.calibration.empty()) args.insert(args.end(), {"--calibration", o.calibration});
  return args;
}

}  // namespace cohort::bench
