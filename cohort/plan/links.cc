#include "cohort/plan/links.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/collective/selector.h"

namespace cohort::plan {

double Links::all_reduce(double bytes) const {
  if (ranks < 2) return 0;
  if (wire) return 2 * bytes * (ranks - 1) / ranks / wire->rate + 2 * collective::log2_ceil(ranks) * wire->latency;
  const collective::Shape shape{.bytes = static_cast<std::size_t>(bytes), .ranks = ranks, .cores = cores, .shared = true, .in_place = true};
  for (const auto& candidate : collective::rank_rows(shape, constants, /*canonical_only=*/true))
    if (candidate.cost && candidate.allowed) return candidate.cost->count();
  return 0;
}

double Links::crowding() const { return wire ? 1 : std::max(1.0, static_cast<double>(ranks) / cores); }

std::string Links::text() const {
  if (ranks < 2) return "one rank: nothing is sent";
  if (wire) return fmt::format("links as told: {:.3g} Gbit/s and {:.3g} us a message", wire->rate * 8 / 1e9, wire->latency * 1e6);
  return fmt::format("links: shared memory of this machine, {} cores for {} ranks; {}", cores, ranks, constants.text());
}

}  // namespace cohort::plan
