#include "cohort/sync/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "cohort/base/text.h"

namespace cohort::sync {
namespace {

// Both neighbours and oneself alike; of two ranks the one neighbour is both.
std::vector<Neighbour> ring(int me, int ranks) {
  if (ranks == 1) return {{me, 1}};
  if (ranks == 2) return {{0, 0.5}, {1, 0.5}};
  return {{me, 1.0 / 3}, {(me + 1) % ranks, 1.0 / 3}, {(me + ranks - 1) % ranks, 1.0 / 3}};
}

std::vector<Neighbour> full(int /*me*/, int ranks) {
  std::vector<Neighbour> all;
  for (int r = 0; r < ranks; ++r) all.push_back({r, 1.0 / ranks});
  return all;
}

// (1 + 2 cos(2 pi k / n)) / 3 are the eigenvalues of a ring.
double ring_contraction(int ranks) {
  if (ranks <= 2) return 0;
  double most = 0;
  for (int k = 1; k < ranks; ++k) most = std::max(most, std::abs(1 + 2 * std::cos(2 * std::numbers::pi * k / ranks)) / 3);
  return most;
}

struct GraphRow {
  std::vector<Neighbour> (*neighbours)(int me, int ranks);
  double (*contraction)(int ranks);
};

const std::map<std::string, GraphRow, std::less<>>& graphs() {
  static const std::map<std::string, GraphRow, std::less<>> rows{{"ring", {ring, ring_contraction}},
                                                                 {"full", {full, [](int) { return 0.0; }}}};
  return rows;
}

const GraphRow& row(std::string_view graph) {
  if (const auto found = graphs().find(graph); found != graphs().end()) return found->second;
  std::vector<std::string_view> known;
  for (const auto& [name, row] : graphs()) known.push_back(name);
  throw_unknown("graph", graph, known);
}

}  // namespace

std::vector<Neighbour> neighbours(std::string_view graph, int me, int ranks) {
  auto all = row(graph).neighbours(me, ranks);
  std::ranges::sort(all, {}, &Neighbour::rank);
  return all;
}

std::vector<std::string> graph_names() {
  std::vector<std::string> names;
  for (const auto& [name, row] : graphs()) names.push_back(name);
  return names;
}

double contraction(std::string_view graph, int ranks) { return row(graph).contraction(ranks); }

}  // namespace cohort::sync
