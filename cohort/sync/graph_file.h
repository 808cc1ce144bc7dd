// Weights of one's own, from a small text file: a line for each rank, on it what that rank takes of ranks 0, 1, 2, ..; '#' begins a
// comment. Several matrices, with an empty line between them, are taken in turn, one a step.
//   1/2 1/2 0        # rank 0 reads itself and rank 1
//   1/4 1/2 1/4
//   1/4 0   3/4
// Owner: values. Threads: any. Failure: Kind::usage naming the file, the line or the sum that is wrong.
#pragma once
#include "cohort/sync/graph.h"

namespace cohort::sync {

enum class Stochastic : std::uint8_t {
  doubly,   // rows and columns sum to 1
  columns,  // columns do: what a rank has goes somewhere, whole
};

// Weights are not negative, every rank keeps a part of its own, and hears of every other one in time.
Graph parse_graph(std::string_view text, std::string_view source, Stochastic what);
Graph read_graph(const std::string& path, Stochastic what);

}  // namespace cohort::sync
