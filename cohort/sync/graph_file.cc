#include "cohort/sync/graph_file.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::sync {
namespace {

constexpr std::size_t kMostBytes = 1_MiB;
constexpr double kTolerance = 1e-9;  // of a sum: a third written as 0.3333333333 is one

// "0.25" or "1/4".
double weight_of(std::string_view word) {
  const auto parts = split(word, '/');
  if (parts.size() > 2) throw_failure(Kind::usage, "'{}' is no weight", word);
  const double weight = parts.size() == 1 ? parse_real(word) : parse_real(parts[0]) / parse_real(parts[1]);
  if (!(weight >= 0 && weight <= 1)) throw_failure(Kind::usage, "{} is not between 0 and 1", word);
  return weight;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t end = 0; end < line.size();) {
    const std::size_t first = line.find_first_not_of(" \t\r", end);
    if (first == std::string_view::npos) break;
    end = std::min(line.find_first_of(" \t\r", first), line.size());
    words.push_back(line.substr(first, end - first));
  }
  return words;
}

std::vector<Neighbour> row_of(const std::vector<std::string_view>& words) {
  std::vector<Neighbour> row;
  for (std::size_t j = 0; j < words.size(); ++j)
    if (const double weight = weight_of(words[j]); weight > 0) row.push_back({static_cast<int>(j), weight});
  return row;
}

void check(const Mixing& mixing, std::string_view source, Stochastic what) {
  std::vector<double> columns(mixing.size());
  for (std::size_t i = 0; i < mixing.size(); ++i) {
    double row = 0;
    bool own = false;
    for (const Neighbour& n : mixing[i]) {
      row += n.weight;
      columns[static_cast<std::size_t>(n.rank)] += n.weight;
      own = own || n.rank == static_cast<int>(i);
    }
    if (!own) throw_failure(Kind::usage, "{}: rank {} keeps nothing of its own model; its line's number {} must be above 0", source, i, i);
    if (what == Stochastic::doubly && std::abs(row - 1) > kTolerance)
      throw_failure(Kind::usage, "{}: what rank {} takes sums to {}, not to 1", source, i, row);
  }
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (std::abs(columns[j] - 1) > kTolerance)
      throw_failure(Kind::usage, "{}: what the ranks take of rank {} sums to {}, not to 1{}", source, j, columns[j],
                    what == Stochastic::doubly ? "; where only lines can, no mean is kept: push_sum wants columns that sum to 1" : "");
}

}  // namespace

Graph parse_graph(std::string_view text, std::string_view source, Stochastic what) {
  Graph graph;
  bool inside = false;
  std::size_t number = 0, ranks = 0;
  for (const std::string_view whole : split(text, '\n')) {
    ++number;
    const auto words = words_of(whole.substr(0, whole.find('#')));
    if (words.empty()) {
      inside = inside && !trim(whole).empty();  // a comment ends no matrix
      continue;
    }
    if (ranks == 0) ranks = words.size();
    if (words.size() != ranks)
      throw_failure(Kind::usage, "{}:{}: {} weights, where the first line has {}", source, number, words.size(), ranks);
    if (!inside) graph.emplace_back();
    inside = true;
    try {
      graph.back().push_back(row_of(words));
    } catch (const Failure& failure) {
      throw_failure(Kind::usage, "{}:{}: {}", source, number, failure.error().what);
    }
  }
  if (graph.empty()) throw_failure(Kind::usage, "{}: no weights in it; a line for each rank, with a number for each rank", source);
  for (const Mixing& mixing : graph) {
    if (mixing.size() != ranks)
      throw_failure(Kind::usage, "{}: a matrix of {} lines, where lines have {} weights: one line for each rank", source, mixing.size(),
                    ranks);
    check(mixing, source, what);
  }
  if (!connected(graph)) throw_failure(Kind::usage, "{}: some ranks never hear of others, however long they train", source);
  return graph;
}

Graph read_graph(const std::string& path, Stochastic what) {
  std::string text;
  try {
    text = read_file(path, kMostBytes);
  } catch (const Failure& failure) {
    throw_failure(Kind::usage, "weights of a graph: {}", failure.error().what);
  }
  return parse_graph(text, path, what);
}

}  // namespace cohort::sync
