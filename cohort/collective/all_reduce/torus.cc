// Hybrid 2-D torus: rings along the rows and the columns of a grid of ranks, both at once on halves of the data. With as many ranks on
// every host a row is a host, so that rows run through shared memory and columns over the network; else the squarest grid.
#include <cmath>

#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/plans/all_reduce_plans.h"

namespace cohort::collective {
namespace {

// One ring of the grid: our neighbours on it and our index in it.
struct Ring {
  int right = 0, left = 0, index = 0, length = 1;
};

Range part(Range range, const Ring& ring, int index) {
  const Range within = part_of(range.size(), ring.length, ((index % ring.length) + ring.length) % ring.length);
  return {range.first + within.first, range.first + within.last};
}
Range own_part(Range range, const Ring& ring) { return part(range, ring, ring.index + 1); }  // after scatter()

void scatter(Plan& plan, Range range, const Ring& l) {
  for (int s = 0; s < l.length - 1; ++s)
    plan.push_back({l.right, part(range, l, l.index - s), l.left, part(range, l, l.index - s - 1), Arrival::theirs_left});
}
void gather(Plan& plan, Range range, const Ring& l) {
  for (int s = 0; s < l.length - 1; ++s)
    plan.push_back({l.right, part(range, l, l.index + 1 - s), l.left, part(range, l, l.index - s), Arrival::copy});
}

Plan half(Range range, const Ring& first, const Ring& second) {
  Plan plan;
  scatter(plan, range, first);
  scatter(plan, own_part(range, first), second);
  gather(plan, own_part(range, first), second);
  gather(plan, range, first);
  return plan;
}

}  // namespace

Plan torus_plan(int rank, Grid grid, std::size_t count) {
  const int row = rank / grid.columns, column = rank % grid.columns;
  const auto at = [&](int r, int c) { return (r + grid.rows) % grid.rows * grid.columns + (c + grid.columns) % grid.columns; };
  const Ring across{at(row, column + 1), at(row, column - 1), column, grid.columns};
  const Ring down{at(row + 1, column), at(row - 1, column), row, grid.rows};
  const Plan rows_first = half({0, count / 2}, across, down), columns_first = half({count / 2, count}, down, across);
  Plan plan;
  for (std::size_t s = 0; s < rows_first.size(); ++s) {  // both are 2(rows + columns - 2) steps
    plan.push_back(rows_first[s]);
    plan.push_back(columns_first[s]);
  }
  return plan;
}

Grid squarest(int ranks) {
  int rows = static_cast<int>(std::sqrt(static_cast<double>(ranks)));
  while (rows > 1 && ranks % rows != 0) --rows;
  return {std::max(1, rows), ranks / std::max(1, rows)};
}

namespace {

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  const double bytes = static_cast<double>(shape.bytes), n = shape.ranks, h = shape.hosts;
  const bool by_host = shape.mixed() && shape.fewest == shape.most;
  const Grid grid = by_host ? Grid{shape.hosts, shape.most} : squarest(shape.ranks);
  const double steps = 2.0 * (grid.rows + grid.columns - 2), moved = bytes * (n - 1) / n;
  const Seconds sums{crowding(shape) * moved / k.reduce_rate};
  if (!shape.mixed()) return link_cost(shape, k, {2 * steps, 2 * moved}) + sums;
  if (!by_host) return link_cost(shape, k, {0, 0, 2 * steps, 2 * moved * shape.most}) + sums;
  // The half that runs along columns first crosses the network whole, from every rank of a host.
  const double across = bytes * (h - 1) / h * (1 + shape.most);
  return link_cost(shape, k, {2.0 * (grid.columns - 1), moved, 4.0 * (grid.rows - 1), across}) + sums;
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode) {
  const Hosts& hosts = peers.hosts();
  const bool by_host = hosts.count() > 1 && hosts.even();
  const Grid grid = by_host ? Grid{hosts.count(), hosts.most()} : squarest(peers.size());
  const auto member = [&](int r) {
    return r < 0 || !by_host ? r : hosts.members(r / grid.columns)[static_cast<std::size_t>(r % grid.columns)];
  };
  const int me = by_host ? hosts.of(peers.rank()) * grid.columns + hosts.local_rank(peers.rank()) : peers.rank();
  Plan plan = torus_plan(me, grid, data.count);
  for (Step& step : plan) step.to = member(step.to), step.from = member(step.from);
  execute_plan(peers, data, how, plan);
}

}  // namespace

extern const AllReduce row_torus{.name = "torus",
                                 .about = "links, rings along both sides of a grid at once; a row is a host where hosts are even",
                                 .canonical = false,
                                 .cost = cost,
                                 .run = run};

}  // namespace cohort::collective
