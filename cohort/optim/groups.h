// Which tensors are decayed, frozen, or learn faster: parameter groups as rules over names and shapes.
//   Groups groups({.weight_decay = 0.05, .frozen = {"stem.*"}, .lr_scale = {parse_lr_scale("head.*: 10")}});
//   Group g = groups.of({"head.bias", {10}});                      // {frozen = false, lr_scale = 10, weight_decay = 0}
// Tensors of at most one dimension (biases, weights of normalisations, single numbers) are not decayed unless decay_1d is set: Jia et al.
// 2018, Goyal et al. 2017. Patterns match whole names; * stands for any text, ? for one character. Of several lr rules the first
// that matches counts. A pattern that matches no tensor is most likely a typing mistake: assign() refuses it.
// Owner: values. Threads: any. Failure: Kind::usage.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/optim/tensor_info.h"

namespace cohort::optim {

struct Group {
  bool frozen = false;
  double lr_scale = 1;
  double weight_decay = 0;
  bool operator==(const Group&) const = default;
};

struct LrScale {
  std::string pattern;
  double factor = 1;
};
LrScale parse_lr_scale(std::string_view text);  // "head.*: 10"

struct GroupOptions {
  double weight_decay = 0;
  bool decay_1d = false;
  std::vector<std::string> frozen{};
  std::vector<LrScale> lr_scale{};
};

struct Assignment {
  std::vector<Group> groups;           // the different ones, in order of first use
  std::vector<std::size_t> of_tensor;  // index into groups, for each tensor
  std::string summary;                 // "decayed 1.2 M in 5 tensors, not decayed 1.5 k in 7"; ", frozen 64 in 1" where there are any
};

class Groups {
 public:
  explicit Groups(GroupOptions options);
  Group of(const TensorInfo& tensor) const;  // pure
  Assignment assign(std::span<const TensorInfo> tensors) const;

 private:
  void check_patterns(std::span<const TensorInfo> tensors) const;
  GroupOptions options_;
};

bool matches(std::string_view pattern, std::string_view name);

}  // namespace cohort::optim
