// The options of `cohort bench`.
// Threads: a value. Failure: Kind::usage naming the word that is wrong. To add an option: a field here, a line in parse_bench_options().
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cohort/collective/types.h"

namespace cohort::bench {

struct BenchOptions {
  std::vector<std::string> collectives{"all_reduce"};
  std::vector<int> ranks{2};
  std::vector<std::size_t> sizes;  // bytes; empty: a range that suits the collective
  std::string dtype = "f32";
  std::string op = "sum";
  std::vector<std::string> algorithms;           // rows of all_reduce; empty: the selector chooses
  std::vector<std::string> buffers{"allocate"};  // allocate: the communicator's own memory; any: ordinary memory
  std::string transport = "auto";                // auto | shm | tcp
  std::string congestion = "auto";               // tcp only
  int streams = 0;                               // tcp only; 0: auto
  int rounds = 5;
  double seconds = 0.3;  // of timing per size and start
  int repeats = 0;       // 0: as many as the seconds allow
  std::vector<std::string> against;
  bool json = false;
  bool explain = false;
  bool calibrate = false;
  bool void_check = true;
  std::string calibration;  // where --calibrate writes and the selector reads; empty: the usual place; none: the built-in constants
  std::string worker_out;   // not empty: this process is one measured rank, and rank 0 writes its lines there
  std::string worker_task;  // measure | explain | calibrate
};

// nullopt: --help was printed. argv[0] is the subcommand's name.
std::optional<BenchOptions> parse_bench_options(int argc, char** argv);

// The command line that gives these options back to `cohort bench` in another process (a worker).
std::vector<std::string> worker_arguments(const BenchOptions& options);

inline constexpr const char* kBenchCollectives[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                                    "gather",     "scatter",        "all_to_all", "barrier",   "send"};

}  // namespace cohort::bench
