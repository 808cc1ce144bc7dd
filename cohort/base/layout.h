// Which tensors lie where in a bucket's flat memory. The elements between them, which round every tensor up to 64 bytes, mean nothing.
// Owner: values. Threads: any. Failure: none.
#pragma once
#include <string>
#include <vector>

#include "cohort/base/piece.h"

namespace cohort {

struct TensorPlace {
  std::string name;  // of the parameter, unique in the model
  std::size_t first = 0, count = 0;
  Shape shape{};  // of the same elements; none: nobody knows, or they are part of a larger tensor
  ElementRange range() const { return {first, count}; }
};

struct Layout {
  std::vector<TensorPlace> tensors;  // in the order they lie in memory
  std::size_t count = 0;             // elements of the whole
  ElementRange all() const { return {0, count}; }
};

}  // namespace cohort
