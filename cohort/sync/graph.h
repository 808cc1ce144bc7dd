// Who reads whose model in a mixing step, and with what weight: pure functions of the number of ranks.
//   x_i <- sum_j W_ij x_j
// A Graph is one such W, or several that are taken in turn. Rows and columns of each sum to 1, so that mixing keeps the mean; where only
// columns do (Stochastic::columns, from a file) it keeps the sum, which is what push_sum wants. To add a graph: a row in graph.cc.
// Owner: values. Threads: any. Failure: Kind::usage with the known names.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::sync {

struct Neighbour {
  int rank = 0;
  double weight = 0;
  bool operator==(const Neighbour&) const = default;
};

using Mixing = std::vector<std::vector<Neighbour>>;  // by rank: whom it reads, by rank, itself included
using Graph = std::vector<Mixing>;                   // step t takes the ((t - 1) mod size)-th

Graph make_graph(std::string_view name, int ranks);
std::vector<std::string> graph_names();

const Mixing& mixing_of(const Graph& graph, std::int64_t step);
std::vector<int> readers(const Mixing& mixing, int rank);  // who reads of this rank, beside itself
double received(const Graph& graph);                       // models that a rank receives in a step, on average over ranks and steps
bool connected(const Graph& graph);                        // every rank hears of every other one, in time
// The share of a disagreement that one turn through the graph leaves at most: the norm of the product of all W - 1/n. Of one symmetric W
// it is its second largest eigenvalue, by absolute value.
double contraction(const Graph& graph);

}  // namespace cohort::sync
