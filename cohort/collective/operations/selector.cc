#include "cohort/collective/operations/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "cohort/base/registry.h"
#include "cohort/base/text.h"
#include "cohort/collective/all_reduce_rows.inc"
#include "cohort/collective/operations/staged.h"

namespace cohort::collective {

std::span<const AllReduce* const> all_reduce_rows() { return kAllReduceRows; }

namespace {

// Small data between ranks that share memory is sent with the opening of the operation: no row is faster.
bool is_eager(const Shape& shape) { return shape.shared && shape.bytes <= kEagerBytes; }

std::string where_text(const Shape& shape) {
  if (shape.mixed())
    return fmt::format("{} hosts with {} ranks, shared memory inside, links between{}", shape.hosts,
                       shape.fewest == shape.most ? fmt::format("{}", shape.most) : fmt::format("{} to {}", shape.fewest, shape.most),
                       shape.nested ? "" : " (sums inside hosts are no part of the canonical bracket)");
  return shape.in_place ? "buffers from allocate()" : shape.shared ? "shared memory, buffers anywhere" : "links only";
}

}  // namespace

std::vector<Candidate> rank_rows(const Shape& shape, const Calibration& k, bool canonical_only) {
  std::vector<Candidate> rows;
  for (const AllReduce* row : all_reduce_rows()) rows.push_back({row, row->cost(shape, k), row->canonical_for(shape) || !canonical_only});
  const auto order = [&](const Candidate& c) {
    const bool first = is_eager(shape) && c.row->name == "staged";
    return std::tuple{!first, !(c.allowed && c.cost), c.cost.value_or(Seconds::max())};
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Candidate& a, const Candidate& b) { return order(a) < order(b); });
  return rows;
}

const AllReduce& all_reduce_named(std::string_view name) { return find_row(all_reduce_rows(), name, "all_reduce algorithm"); }

const AllReduce& choose(const Shape& shape, const Calibration& k, bool canonical_only) {
  if (is_eager(shape)) return all_reduce_named("staged");
  const AllReduce* best = nullptr;
  Seconds least = Seconds::max();
  for (const AllReduce* row : all_reduce_rows()) {
    if (canonical_only && !row->canonical_for(shape)) continue;
    const auto cost = row->cost(shape, k);
    if (cost && *cost < least) best = row, least = *cost;
  }
  if (best == nullptr) throw_failure(Kind::bug, "no all-reduce row fits {} bytes on {} ranks", shape.bytes, shape.ranks);
  return *best;
}

std::string explain(const Shape& shape, const Calibration& k, bool canonical_only) {
  auto out = fmt::format("{}, {} rank{} on {} core{}, {}:", format_bytes(shape.bytes), shape.ranks, shape.ranks == 1 ? "" : "s",
                         shape.cores, shape.cores == 1 ? "" : "s", where_text(shape));
  for (const auto& c : rank_rows(shape, k, canonical_only)) {
    out += fmt::format("\n  {:<20}", c.row->name);
    out += c.cost ? fmt::format("{:>12.2f} us", c.cost->count() * 1e6) : fmt::format("{:>12}   ", "no");
    out += fmt::format("  {}", c.row->about);
    if (is_eager(shape) && c.row->name == "staged") out += "; always up to 8 KiB, with the opening of the operation";
    if (!c.cost) out += fmt::format("; needs {}", c.row->needs);
    if (!c.allowed) out += "; left out: its bits are not the canonical ones";
  }
  return out;
}

}  // namespace cohort::collective
