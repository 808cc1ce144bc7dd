// Who talks to whom as plain data: a Plan is the list of a rank's Steps. Plans are pure functions of (rank, ranks, count) with their own
// table tests; peers/execute_plan.h runs one over links. Threads: values, any. Failure: none.
#pragma once
#include <cstddef>
#include <vector>

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

}  // namespace cohort::collective
