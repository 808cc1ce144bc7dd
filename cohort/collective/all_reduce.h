// All-reduce algorithms are rows of a table, not classes. To add one: all_reduce/<word>.cc with `row_<word>`, the word in
// all_reduce/CMakeLists.txt, and all_reduce/<word>_test.cc.
// A row that is `canonical` gives the bits of the canonical bracket (kernels.h) for any rank count, size and chunking.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "cohort/collective/cost.h"
#include "cohort/collective/kernels.h"
#include "cohort/collective/peers.h"

namespace cohort::collective {

struct AllReduce {
  std::string_view name, about;
  bool canonical;
  std::optional<Seconds> (*cost)(const Shape& shape, const Calibration& k);  // nullopt: cannot be used for this shape
  void (*run)(Peers& peers, Piece data, const Reduction& how, Opening opening);
};

std::span<const AllReduce* const> all_reduce_rows();
const AllReduce& all_reduce_named(std::string_view name);  // Kind::usage with the known names

}  // namespace cohort::collective
