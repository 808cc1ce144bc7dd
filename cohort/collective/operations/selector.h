// The Selector picks the cheapest all-reduce row for a shape. Pure: the same constants give the same choice on every rank.
#pragma once
#include <string>
#include <vector>

#include "cohort/collective/operations/all_reduce.h"

namespace cohort::collective {

struct Candidate {
  const AllReduce* row = nullptr;
  std::optional<Seconds> cost;  // none: cannot be used here
  bool allowed = true;          // false: not canonical and only canonical rows are wanted
};

// Every row with its cost, cheapest usable first.
std::vector<Candidate> rank_rows(const Shape& shape, const Calibration& k, bool canonical_only);
const AllReduce& choose(const Shape& shape, const Calibration& k, bool canonical_only);
// "1 MiB, 4 ranks on 2 cores, in place: zero_copy 61 us; staged 140 us; ..." for people.
std::string explain(const Shape& shape, const Calibration& k, bool canonical_only);

}  // namespace cohort::collective
