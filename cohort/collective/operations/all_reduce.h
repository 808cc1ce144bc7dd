// All-reduce algorithms are rows of a table, not classes. To add one: all_reduce/<word>.cc with `row_<word>`, the word in
// all_reduce/CMakeLists.txt, and all_reduce/<word>_test.cc.
// A row that is `canonical` gives the bits of the canonical bracket (kernels.h) for any rank count, size and chunking; one that has a
// `nests` too does so only for the shapes for which that says yes (how ranks lie on hosts).
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "cohort/collective/cost/cost.h"
#include "cohort/collective/kernels/kernels.h"
#include "cohort/collective/peers/peers.h"

namespace cohort::collective {

struct AllReduce {
  std::string_view name, about;
  bool canonical;
  std::optional<Seconds> (*cost)(const Shape& shape, const Calibration& k);  // nullopt: cannot be used for this shape
  void (*run)(Peers& peers, Piece data, const Reduction& how, StartMode start_mode);
  std::string_view needs = "";  // what is missing where cost() says that it cannot be used, for people
  bool (*nests)(const Shape& shape) = nullptr;
  bool canonical_for(const Shape& shape) const { return canonical && (nests == nullptr || nests(shape)); }
};

std::span<const AllReduce* const> all_reduce_rows();
const AllReduce& all_reduce_named(std::string_view name);  // Kind::usage with the known names

}  // namespace cohort::collective
