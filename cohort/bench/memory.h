// `cohort bench memory`: what each rank of a sharded training run holds, class by class, beside what the formula says.
//   parameters, gradients, optimizer, buckets   by the ledger (base/ledger.h): what was allocated for them; the rank with the most counts
//   sum                                         by the kernel: Pss (shared pages count once) less the Pss before the model was made,
//                                               the mean over the ranks
// Threads: the main one. Failure: a worker's, with its last lines: a stage that does not exist is refused by the strategy itself.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::bench {

struct MemoryRow {
  int stage = 0, ranks = 0;
  std::string what;  // a class, or "sum"
  double formula = 0, measured = 0;
  double off() const { return formula > 0 ? measured / formula - 1 : 0; }
};
std::vector<MemoryRow> parse_memory_lines(std::string_view text);  // Kind::corrupt for what no worker writes
std::string json_line(const MemoryRow& row);
std::string memory_table(const std::vector<MemoryRow>& rows);

// The whole of `cohort bench memory`; argv[0] is "memory".
int run_memory(int argc, char** argv);

}  // namespace cohort::bench
