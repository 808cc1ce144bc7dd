// Who-talks-to-whom as plain data (Step), and the one executor that walks it over links.
// Plans are pure functions of (rank, ranks, count) with their own table tests; walk() moves and reduces.
#pragma once
#include <cstddef>
#include <vector>

#include "cohort/collective/kernels.h"
#include "cohort/collective/peers.h"

namespace cohort::collective {

struct Range {
  std::size_t first = 0, last = 0;  // elements
  std::size_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};

enum class Arrival { copy, theirs_left, theirs_right };  // overwrite; theirs op mine; mine op theirs

// One send and one receive at the same time; -1: none.
struct Step {
  int to = -1;
  Range send;
  int from = -1;
  Range recv;
  Arrival arrival = Arrival::copy;
  bool operator==(const Step&) const = default;
};
using Plan = std::vector<Step>;

// Part `index` of `count` elements in `parts` parts that start on multiples of `grain`.
Range part_of(std::size_t count, int parts, int index, std::size_t grain = 1);

// One segment that came, into ours; as it is, without scaling.
void reduce_into(Piece mine, void* theirs, const Reduction& how, Arrival arrival);

// Messages are cut into segments so that reducing one overlaps with receiving the next. Scaling as in kernels.h, before and after.
void walk(Peers& peers, Piece data, const Reduction& how, const Plan& plan);

}  // namespace cohort::collective
