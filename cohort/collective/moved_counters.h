// Elements received, by collective. Shared by a communicator, its children and their channels: the parent counts for all.
// Threads: any. Failure: none.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "cohort/collective/types.h"

namespace cohort::collective {

struct MovedCounters {
  struct Row {
    std::atomic<std::uint64_t> calls{0}, elements{0}, bytes{0};
  };
  std::array<Row, kCollectives> rows;

  void count(Collective collective, std::size_t elements, Dtype dtype) {
    Row& row = rows[static_cast<std::size_t>(collective)];
    row.calls.fetch_add(1, std::memory_order_relaxed);
    row.elements.fetch_add(elements, std::memory_order_relaxed);
    row.bytes.fetch_add(elements * size_of(dtype), std::memory_order_relaxed);
  }
};

}  // namespace cohort::collective
