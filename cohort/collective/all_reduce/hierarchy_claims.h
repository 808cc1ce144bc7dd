// What the hierarchical algorithms (hierarchy.h) promise wherever buffers lie and however uneven hosts are. For their tests.
#pragma once
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/collective/ranks.h"
#include "cohort/net/mixed.h"

namespace cohort::collective {

// Buffers from allocate(), others, and on every host some of each.
inline void expect_exact_sums(const std::vector<int>& hosts, std::size_t count, std::string_view row) {
  const auto body = [&](Communicator& comm) {
    const Region region = comm.allocate(count * sizeof(int));
    std::vector<int> elsewhere(count), expected(count);
    const int n = comm.size(), ranks = n * (n - 1) / 2;
    for (std::size_t i = 0; i < count; ++i) expected[i] = n * static_cast<int>(i % 9973) + ranks;
    for (const bool in_region : {true, false, comm.rank().value % 2 == 0}) {
      const auto values = in_region ? region.as<int>() : std::span(elsewhere);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i % 9973) + comm.rank().value;
      comm.all_reduce(Piece{values.data(), count, Dtype::i32, Device::cpu}, Op::sum, {.algorithm = row});
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), values.begin())) << row << " on rank " << comm.rank().value;
    }
  };
  run_ranks(static_cast<int>(hosts.size()), body, {}, [&](int) { return net::mixed_world(hosts); });
}

}  // namespace cohort::collective
