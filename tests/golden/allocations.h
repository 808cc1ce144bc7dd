// How often this thread asked for memory with `new`.
#pragma once
#include <cstddef>

namespace cohort::golden {

std::size_t allocations();

}  // namespace cohort::golden
