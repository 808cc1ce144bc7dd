#include "cohort/sync/graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "cohort/base/text.h"

namespace cohort::sync {
namespace {

using Near = std::vector<std::set<int>>;  // by rank: its neighbours, on both ends of every edge

void connect(Near& near, int a, int b) {
  if (a == b) return;
  near[static_cast<std::size_t>(a)].insert(b);
  near[static_cast<std::size_t>(b)].insert(a);
}

// Metropolis weights (Xiao, Boyd 2004): W_ij = 1 / (1 + max(d_i, d_j)), the rest a rank keeps. Where degrees d are equal all weights are.
Mixing metropolis(const Near& near) {
  Mixing mixing(near.size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    const auto degree = near[i].size();
    double kept = 1.0 / (1.0 + static_cast<double>(degree));
    for (const int j : near[i]) {
      const double weight = 1.0 / (1.0 + static_cast<double>(std::max(degree, near[static_cast<std::size_t>(j)].size())));
      kept += 1.0 / (1.0 + static_cast<double>(degree)) - weight;
      mixing[i].push_back({j, weight});
    }
    mixing[i].push_back({static_cast<int>(i), kept});
    std::ranges::sort(mixing[i], {}, &Neighbour::rank);
  }
  return mixing;
}

Graph symmetric(int ranks, const std::function<void(Near&, int rank)>& edges_of) {
  Near near(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) edges_of(near, r);
  return {metropolis(near)};
}

Graph ring(int ranks) {
  return symmetric(ranks, [&](Near& near, int r) { connect(near, r, (r + 1) % ranks); });
}

Graph full(int ranks) {
  return symmetric(ranks, [&](Near& near, int r) {
    for (int other = 0; other < r; ++other) connect(near, r, other);
  });
}

Graph star(int ranks) {
  return symmetric(ranks, [](Near& near, int r) { connect(near, 0, r); });
}

// As square as the number of ranks allows; of a prime number it is a ring.
Graph torus(int ranks) {
  int rows = 1;
  for (int r = 1; r * r <= ranks; ++r)
    if (ranks % r == 0) rows = r;
  const int columns = ranks / rows;
  return symmetric(ranks, [&](Near& near, int r) {
    const int row = r / columns, column = r % columns;
    connect(near, r, row * columns + (column + 1) % columns);
    connect(near, r, (row + 1) % rows * columns + column);
  });
}

// Everybody reads who is `back` behind it, for each of these, and itself: all alike.
Mixing circulant(int ranks, const std::vector<int>& back) {
  Mixing mixing(static_cast<std::size_t>(ranks));
  const double weight = 1.0 / static_cast<double>(back.size() + 1);
  for (int r = 0; r < ranks; ++r) {
    auto& row = mixing[static_cast<std::size_t>(r)];
    row.push_back({r, weight});
    for (const int b : back) row.push_back({(r + ranks - b) % ranks, weight});
    std::ranges::sort(row, {}, &Neighbour::rank);
  }
  return mixing;
}

std::vector<int> powers_below(int ranks) {
  std::vector<int> all;
  for (int power = 1; power < ranks; power *= 2) all.push_back(power);
  return all;
}

Graph exponential(int ranks) { return {circulant(ranks, powers_below(ranks))}; }

// (Assran et al. 2019; Ying et al. 2021) 1, 2, 4, .. behind, in turn: of 2^k ranks the k steps of a turn give the mean.
Graph one_peer(int ranks) {
  Graph turn;
  for (const int back : powers_below(ranks)) turn.push_back(circulant(ranks, {back}));
  if (turn.empty()) turn.push_back(circulant(ranks, {}));
  return turn;
}

using Maker = Graph (*)(int ranks);
const std::map<std::string, Maker, std::less<>>& graphs() {
  static const std::map<std::string, Maker, std::less<>> rows{
      {"ring", ring}, {"full", full}, {"star", star}, {"torus", torus}, {"exponential", exponential}, {"one_peer", one_peer}};
  return rows;
}

// Dense, row by row.
using Matrix = std::vector<double>;

Matrix times(const Matrix& a, const Matrix& b, std::size_t n) {
  Matrix product(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j < n; ++j) product[i * n + j] += a[i * n + k] * b[k * n + j];
  return product;
}

Matrix without_mean(const Mixing& mixing) {
  const std::size_t n = mixing.size();
  Matrix dense(n * n, -1.0 / static_cast<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (const Neighbour& neighbour : mixing[i]) dense[i * n + static_cast<std::size_t>(neighbour.rank)] += neighbour.weight;
  return dense;
}

// The largest eigenvalue of a symmetric positive semidefinite matrix: |A^m|^(1/m) for m = 2^60, by squaring.
double largest_eigenvalue(Matrix a, std::size_t n) {
  double log_norm = 0, share = 1;
  for (int squared = 0; squared < 60; ++squared, share /= 2) {
    double norm = 0;
    for (const double x : a) norm = std::hypot(norm, x);
    if (norm < 1e-30) return 0;
    log_norm += share * std::log(norm);
    for (double& x : a) x /= norm;
    a = times(a, a, n);
  }
  return std::exp(log_norm);
}

}  // namespace

Graph make_graph(std::string_view name, int ranks) {
  if (const auto found = graphs().find(name); found != graphs().end()) return found->second(ranks);
  std::vector<std::string_view> known;
  for (const auto& [word, maker] : graphs()) known.push_back(word);
  throw_unknown("graph", name, known);
}

std::vector<std::string> graph_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : graphs()) names.push_back(name);
  return names;
}

const Mixing& mixing_of(const Graph& graph, std::int64_t step) { return graph[static_cast<std::size_t>(step - 1) % graph.size()]; }

std::vector<int> readers(const Mixing& mixing, int rank) {
  std::vector<int> all;
  for (std::size_t i = 0; i < mixing.size(); ++i)
    if (static_cast<int>(i) != rank && std::ranges::find(mixing[i], rank, &Neighbour::rank) != mixing[i].end())
      all.push_back(static_cast<int>(i));
  return all;
}

double received(const Graph& graph) {
  double edges = 0, rows = 0;
  for (const Mixing& mixing : graph)
    for (const auto& row : mixing) {
      edges += static_cast<double>(row.size()) - 1;
      ++rows;
    }
  return edges / rows;
}

bool connected(const Graph& graph) {
  const std::size_t n = graph[0].size();
  const auto reaches_all = [&](bool forward) {
    std::set<int> seen{0};
    for (std::size_t before = 0; before != seen.size();) {
      before = seen.size();
      for (const Mixing& mixing : graph)
        for (std::size_t i = 0; i < n; ++i)
          for (const Neighbour& neighbour : mixing[i])
            if (seen.contains(forward ? neighbour.rank : static_cast<int>(i))) seen.insert(forward ? static_cast<int>(i) : neighbour.rank);
    }
    return seen.size() == n;
  };
  return reaches_all(true) && reaches_all(false);
}

double contraction(const Graph& graph) {
  const std::size_t n = graph[0].size();
  Matrix product = without_mean(graph[0]);
  for (std::size_t k = 1; k < graph.size(); ++k) product = times(without_mean(graph[k]), product, n);
  Matrix transposed(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) transposed[j * n + i] = product[i * n + j];
  return std::sqrt(largest_eigenvalue(times(transposed, product, n), n));
}

}  // namespace cohort::sync
