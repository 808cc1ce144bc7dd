// Runs a plan symbolically, for tests: every element of every rank is a text such as "(0+1)", so that a plan proves its bracket without a
// network.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "cohort/base/bracket.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {

using Texts = std::vector<std::string>;  // one per element

inline std::string bracket_text(int first, int last) {
  if (last - first == 1) return std::to_string(first);
  const int middle = first + static_cast<int>(bracket_split(static_cast<std::size_t>(last - first)));
  return "(" + bracket_text(first, middle) + "+" + bracket_text(middle, last) + ")";
}

// The elements every rank holds at the end. Empty when the plans get stuck: a receive that has no send, or a length that differs.
inline std::vector<Texts> simulate(Plan (*plan_of)(int, int, std::size_t), int ranks, std::size_t count) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Texts> held(n);
  std::vector<Plan> plans(n);
  for (int r = 0; r < ranks; ++r) {
    held[static_cast<std::size_t>(r)].assign(count, std::to_string(r));
    plans[static_cast<std::size_t>(r)] = plan_of(r, ranks, count);
  }
  std::map<std::pair<int, int>, std::deque<Texts>> wire;
  std::vector<std::size_t> at(n, 0);
  std::vector<bool> sent(n, false);
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < ranks; ++r) {
      const auto me = static_cast<std::size_t>(r);
      if (at[me] == plans[me].size()) continue;
      const Step& step = plans[me][at[me]];
      if (!sent[me]) {
        const auto first = held[me].begin();
        if (step.to >= 0 && step.send.size() > 0)
          wire[{r, step.to}].emplace_back(first + static_cast<long>(step.send.first), first + static_cast<long>(step.send.last));
        sent[me] = moved = true;
      }
      if (step.from >= 0 && step.recv.size() > 0) {
        auto& queue = wire[{step.from, r}];
        if (queue.empty()) continue;
        if (queue.front().size() != step.recv.size()) return {};
        for (std::size_t i = 0; i < step.recv.size(); ++i) {
          std::string& mine = held[me][step.recv.first + i];
          const std::string& theirs = queue.front()[i];
          if (step.arrival == Arrival::copy) mine = theirs;
          if (step.arrival == Arrival::theirs_left) mine = "(" + theirs + "+" + mine + ")";
          if (step.arrival == Arrival::theirs_right) mine = "(" + mine + "+" + theirs + ")";
        }
        queue.pop_front();
      }
      ++at[me];
      sent[me] = false;
      moved = true;
    }
  }
  for (std::size_t r = 0; r < n; ++r)
    if (at[r] != plans[r].size()) return {};
  for (const auto& [pair, queue] : wire)
    if (!queue.empty()) return {};
  return held;
}

}  // namespace cohort::collective
