// What rules and groups know of a tensor before it has memory.
// Owner: a value. Threads: any. Failure: none.
#pragma once
#include <cstddef>
#include <string>

#include "cohort/base/piece.h"

namespace cohort::optim {

inline std::size_t count_of(const cohort::Shape& shape) {
  std::size_t count = 1;
  for (const auto size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

struct TensorInfo {
  std::string name{};
  cohort::Shape shape{};
  Dtype dtype = Dtype::f32;

  std::size_t ndim() const { return shape.size(); }
  std::size_t numel() const { return count_of(shape); }
};

}  // namespace cohort::optim
