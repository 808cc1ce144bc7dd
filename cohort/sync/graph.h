// Who exchanges models with whom, and with what weights: pure functions of the number of ranks. Every graph here is symmetric and its
// weights doubly stochastic, so that a mixing step keeps the mean. To add a graph: a row in graph.cc.
// Owner: values. Threads: any. Failure: Kind::usage with the known names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace cohort::sync {

struct Neighbour {
  int rank = 0;
  double weight = 0;
  bool operator==(const Neighbour&) const = default;
};

// Of one rank, by rank, itself included.
std::vector<Neighbour> neighbours(std::string_view graph, int me, int ranks);
std::vector<std::string> graph_names();
// The share of a disagreement that a mixing step leaves: the second largest eigenvalue of the weights, by absolute value.
double contraction(std::string_view graph, int ranks);

}  // namespace cohort::sync
