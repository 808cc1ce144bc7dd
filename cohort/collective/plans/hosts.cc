#include "cohort/collective/plans/hosts.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "cohort/base/bracket.h"

namespace cohort::collective {
namespace {

// The bracket over these hosts cuts their ranks where the bracket over the ranks does.
bool branches(std::span<const std::size_t> sizes) {
  if (sizes.size() == 1) return true;
  const auto left = sizes.first(bracket_split(sizes.size())), right = sizes.subspan(left.size());
  const auto ranks = [](std::span<const std::size_t> some) { return std::accumulate(some.begin(), some.end(), std::size_t{0}); };
  return ranks(left) == bracket_split(ranks(sizes)) && branches(left) && branches(right);
}

}  // namespace

Hosts::Hosts(const std::vector<int>& labels) {
  std::vector<int> seen;
  for (std::size_t m = 0; m < labels.size(); ++m) {
    const auto at = std::find(seen.begin(), seen.end(), labels[m]);
    const auto host = static_cast<std::size_t>(at - seen.begin());
    if (at == seen.end()) {
      seen.push_back(labels[m]);
      members_.emplace_back();
    }
    of_.push_back(static_cast<int>(host));
    members_[host].push_back(static_cast<int>(m));
  }
}

int Hosts::local_rank(int member) const {
  const auto& all = members(of(member));
  return static_cast<int>(std::find(all.begin(), all.end(), member) - all.begin());
}

int Hosts::fewest() const {
  std::size_t least = of_.size();
  for (const auto& all : members_) least = std::min(least, all.size());
  return static_cast<int>(least);
}

int Hosts::most() const {
  std::size_t most = 0;
  for (const auto& all : members_) most = std::max(most, all.size());
  return static_cast<int>(most);
}

bool Hosts::nested() const {
  std::vector<std::size_t> sizes;
  for (const auto& all : members_) sizes.push_back(all.size());
  return std::is_sorted(of_.begin(), of_.end()) && (sizes.empty() || branches(sizes));
}

}  // namespace cohort::collective
