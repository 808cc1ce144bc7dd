// Which part of a tensor a rank holds where several share it out (tensor parallelism): a box, said in the whole tensor's terms, so that
// files, norms and comparisons know a parameter by its global name and place, and need not know how many ranks there were.
//   ShardSpec half = cut_evenly("fc1.weight", {512, 784}, 0, 1, 2);   // rows 256 .. 511: half.box is {{256, 0}, {256, 784}}
// Elements of a box are counted as it lies in its rank's memory: laid out flat, the last dimension fastest.
// Owner: values. Threads: any. Failure: Kind::usage for a cut that is not even.
#pragma once
#include <string>
#include <vector>

#include "cohort/base/piece.h"

namespace cohort {

struct Box {
  Shape first, sizes;  // one of each for every dimension of the tensor
  bool operator==(const Box&) const = default;
};

Box whole_box(const Shape& shape);
std::int64_t elements_of(const Box& box);
Box overlap(const Box& a, const Box& b);             // of one tensor; empty: sizes with a 0
bool is_inside(const Box& box, const Shape& shape);  // as many dimensions, none negative or beyond the tensor
std::string to_text(const Box& box);                 // "256:512, 0:784"

struct ShardSpec {
  std::string name;  // global: the same on every rank that holds a part
  Shape whole;       // of the tensor
  Box box{};         // of it, here
  bool is_whole() const { return box == whole_box(whole); }
  bool operator==(const ShardSpec&) const = default;
};

// Part `part` of `parts` equal ones along a dimension.
ShardSpec cut_evenly(std::string name, const Shape& whole, std::size_t dimension, int part, int parts);

// Elements that two boxes of one tensor have in common: runs that are contiguous in both, in the order of both.
struct CommonRun {
  std::size_t in_a = 0, in_b = 0, count = 0;  // elements from the start of each box
  bool operator==(const CommonRun&) const = default;
};
std::vector<CommonRun> common_runs(const Box& a, const Box& b);
// Those within a run of each box.
std::vector<CommonRun> common_runs(const Box& a, const ElementRange& of_a, const Box& b, const ElementRange& of_b);

}  // namespace cohort
