#include "cohort/plan/links.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/collective/operations/selector.h"

namespace cohort::plan {

double Links::all_reduce(double bytes) const {
  if (ranks < 2) return 0;
  if (link_speed) return 2 * bytes * (ranks - 1) / ranks / link_speed->rate + 2 * collective::log2_ceil(ranks) * link_speed->latency;
  const collective::Shape shape{.bytes = static_cast<std::size_t>(bytes), .ranks = ranks, .cores = cores, .shared = true, .in_place = true};
  for (const auto& candidate : collective::rank_rows(shape, constants, /*canonical_only=*/true))
    if (candidate.cost && candidate.allowed) return candidate.cost->count();
  return 0;
}

double Links::ranks_per_core() const { return link_speed ? 1 : std::max(1.0, static_cast<double>(ranks) / cores); }

std::string Links::text() const {
  if (ranks < 2) return "one rank: nothing is sent";
  if (link_speed)
    return fmt::format("links as given: {:.3g} Gbit/s and {:.3g} us a message", link_speed->rate * 8 / 1e9, link_speed->latency * 1e6);
  return fmt::format("links: shared memory of this machine, {} cores for {} ranks; {}", cores, ranks, constants.text());
}

}  // namespace cohort::plan
