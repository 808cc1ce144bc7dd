#include "cohort/optim/side.h"

#include <algorithm>
#include <numeric>

namespace cohort::optim {

std::vector<int> assign_jobs(std::span<const Job> jobs, int ranks) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return jobs[a].cost > jobs[b].cost; });
  std::vector<double> load(static_cast<std::size_t>(ranks));
  std::vector<int> rank_of(jobs.size());
  for (const std::size_t j : order) {
    const auto least = std::ranges::min_element(load);
    rank_of[j] = static_cast<int>(least - load.begin());
    *least += jobs[j].cost;
  }
  return rank_of;
}

}  // namespace cohort::optim
