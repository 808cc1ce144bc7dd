#include "cohort/base/shard_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "cohort/base/error.h"

namespace cohort {
namespace {

// Elements between two neighbours along each dimension.
std::vector<std::size_t> strides_of(const Shape& sizes) {
  std::vector<std::size_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * static_cast<std::size_t>(sizes[d]);
  return strides;
}

std::size_t offset_in(const Box& box, const std::vector<std::size_t>& strides, const Shape& at) {
  std::size_t offset = 0;
  for (std::size_t d = 0; d < at.size(); ++d) offset += static_cast<std::size_t>(at[d] - box.first[d]) * strides[d];
  return offset;
}

// The dimensions before this one are stepped through; from it on the common elements are contiguous in both boxes.
std::size_t stepped_dimensions(const Box& common, const Box& a, const Box& b) {
  std::size_t d = common.sizes.size();
  while (d > 0 && common.sizes[d - 1] == a.sizes[d - 1] && common.sizes[d - 1] == b.sizes[d - 1]) --d;
  return d > 0 ? d - 1 : 0;
}

// Less the rows along the first dimension that a run of one of the boxes does not touch.
Box touched(Box common, const Box& box, const std::vector<std::size_t>& strides, const ElementRange& run) {
  if (common.sizes.empty() || run.count == 0) return common;
  Box rows = common;
  rows.first[0] = box.first[0] + static_cast<std::int64_t>(run.first / strides[0]);
  rows.sizes[0] = box.first[0] + static_cast<std::int64_t>((run.last() - 1) / strides[0]) + 1 - rows.first[0];
  return overlap(common, rows);
}

// The next place of the first `dimensions`, the last of them fastest; false: that was the last.
bool step(Shape& at, const Box& box, std::size_t dimensions) {
  for (std::size_t d = dimensions; d-- > 0;) {
    if (++at[d] < box.first[d] + box.sizes[d]) return true;
    at[d] = box.first[d];
  }
  return false;
}

}  // namespace

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

std::int64_t elements_of(const Box& box) {
  std::int64_t count = 1;
  for (const auto size : box.sizes) count *= size;
  return count;
}

Box overlap(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t d = 0; d < a.sizes.size(); ++d) {
    common.first[d] = std::max(a.first[d], b.first[d]);
    common.sizes[d] = std::max<std::int64_t>(0, std::min(a.first[d] + a.sizes[d], b.first[d] + b.sizes[d]) - common.first[d]);
  }
  return common;
}

bool is_inside(const Box& box, const Shape& shape) {
  if (box.first.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (box.first[d] < 0 || box.sizes[d] < 0 || box.first[d] > shape[d] || box.sizes[d] > shape[d] - box.first[d]) return false;
  return true;
}

std::string to_text(const Box& box) {
  std::vector<std::string> dimensions;
  for (std::size_t d = 0; d < box.sizes.size(); ++d) dimensions.push_back(fmt::format("{}:{}", box.first[d], box.first[d] + box.sizes[d]));
  return fmt::format("{}", fmt::join(dimensions, ", "));
}

ShardSpec cut_evenly(std::string name, const Shape& whole, std::size_t dimension, int part, int parts) {
  if (dimension >= whole.size() || part < 0 || part >= parts)
    throw_failure(Kind::bug, "{} of [{}] has no part {} of {} along dimension {}", name, fmt::join(whole, ", "), part, parts, dimension);
  if (whole[dimension] % parts != 0)
    throw_failure(Kind::usage, "{} of [{}] cannot be cut into {} equal parts: its dimension {} is {}; take a multiple of {}", name,
                  fmt::join(whole, ", "), parts, dimension, whole[dimension], parts);
  ShardSpec spec{std::move(name), whole, whole_box(whole)};
  spec.box.sizes[dimension] = whole[dimension] / parts;
  spec.box.first[dimension] = spec.box.sizes[dimension] * part;
  return spec;
}

std::vector<CommonRun> common_runs(const Box& a, const Box& b) {
  return common_runs(a, {0, static_cast<std::size_t>(elements_of(a))}, b, {0, static_cast<std::size_t>(elements_of(b))});
}

std::vector<CommonRun> common_runs(const Box& a, const ElementRange& of_a, const Box& b, const ElementRange& of_b) {
  const auto in_a = strides_of(a.sizes), in_b = strides_of(b.sizes);
  Box common = overlap(a, b);
  std::vector<CommonRun> runs;
  if (elements_of(common) == 0 || of_a.count == 0 || of_b.count == 0) return runs;
  const std::size_t stepped = stepped_dimensions(common, a, b);
  if (stepped > 0) common = touched(touched(common, a, in_a, of_a), b, in_b, of_b);
  if (elements_of(common) == 0) return runs;
  std::size_t count = 1;
  for (std::size_t d = stepped; d < common.sizes.size(); ++d) count *= static_cast<std::size_t>(common.sizes[d]);
  Shape at = common.first;
  do {
    const std::size_t from_a = offset_in(a, in_a, at), from_b = offset_in(b, in_b, at);
    const ElementRange here = of_a.overlap({from_a, count});
    const ElementRange there = of_b.overlap({from_b + (here.first - from_a), here.count});
    if (here.count == 0 || there.count == 0) continue;
    runs.push_back({here.first + (there.first - from_b - (here.first - from_a)), there.first, there.count});
  } while (step(at, common, stepped));
  return runs;
}

}  // namespace cohort
