// Which parameters share a bucket: a pure function of their sizes and the order their gradients arrive in.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cohort::engine {

struct PlanTensor {
  std::size_t bytes = 0;
  int kind = 0;  // tensors of different kinds (type) share no bucket
};

// Buckets of indices into `tensors`, which are given in the order of arrival. The first bucket is small, so that something can be sent
// early; then each is closed when it holds `bytes`. A larger tensor has a bucket of its own. bytes == 0: one bucket per kind.
std::vector<std::vector<std::size_t>> plan_buckets(std::span<const PlanTensor> tensors, std::size_t first_bytes, std::size_t bytes);

// Lanes hide communication behind backward where a core is free for them; with as many ranks as cores they only compete.
struct LaneChoice {
  int lanes = 0;
  std::string why;
};
// wanted < 0: decide. far: ranks are on several hosts.
LaneChoice choose_lanes(int wanted, int cores, int ranks_here, std::size_t buckets, bool far = false);

}  // namespace cohort::engine
