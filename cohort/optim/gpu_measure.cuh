// The kernel of GpuMeasure: squares of value(i), for i below count, added to a tally. 16 threads have a block of 256 elements: thread l
// adds up those whose number in the block is l modulo 16, in order; then the 16 fold as a binary tree.
// For .cu files.
#pragma once
#include "cohort/cuda/launch.cuh"
#include "cohort/optim/gpu_measure.h"

namespace cohort::optim {
inline namespace for_gpus {

// ExactSum::add(), to limbs that many threads add to.
__device__ inline void add_to_limbs(unsigned long long* limbs, double number) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(number));
  const unsigned long long exponent = bits >> 52U, fraction = bits & ((1ULL << 52U) - 1);
  if (exponent >= 2047) return void(atomicAdd(&limbs[ExactSum::kLimbs], 1ULL));
  if (number == 0) return;
  const unsigned long long shift = exponent == 0 ? 0 : exponent - 1, by = shift % 32;
  const unsigned long long whole = exponent == 0 ? fraction : fraction | 1ULL << 52U;
  const unsigned long long low = whole << by, high = by == 0 ? 0 : whole >> (64 - by);  // of 96 bits
  unsigned long long* const limb = limbs + shift / 32;
  atomicAdd(&limb[0], low & 0xffffffffULL);
  atomicAdd(&limb[1], low >> 32U);
  if (high != 0) atomicAdd(&limb[2], high);
}

template <class T, class Value>
__global__ void __launch_bounds__(cuda::kThreads) squares_kernel(Value value, std::size_t count, unsigned long long* tally) {
  __shared__ unsigned long long words[kTallyWords];
  for (unsigned k = threadIdx.x; k < kTallyWords; k += blockDim.x) words[k] = 0;
  __syncthreads();
  constexpr unsigned kLanes = kMeasureLanes, kTeams = cuda::kThreads / kLanes;
  constexpr int kRounds = kMeasureBlock / kMeasureLanes;
  const unsigned lane = threadIdx.x % kLanes, team = threadIdx.x / kLanes;
  const std::size_t blocks = (count + kMeasureBlock - 1) / kMeasureBlock, step = static_cast<std::size_t>(gridDim.x) * kTeams;
  // All teams of a warp go round equally often, as they fold together.
  for (std::size_t first = static_cast<std::size_t>(blockIdx.x) * kTeams; first < blocks; first += step) {
    const std::size_t from = (first + team) * kMeasureBlock + lane;
    T at[kRounds];
#pragma unroll
    for (int k = 0; k < kRounds; ++k) at[k] = from + k * kLanes < count ? value(from + k * kLanes) : T{0};
    double sum = 0;
#pragma unroll
    for (int k = 0; k < kRounds; ++k) sum += static_cast<double>(at[k]) * static_cast<double>(at[k]);  // a zero beyond the end adds nothing
#pragma unroll
    for (unsigned half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffU, sum, half, kLanes);
    if (lane == 0) add_to_limbs(words, sum);
    bool finite = true;  // squares of f64 may overflow by themselves: the elements say
#pragma unroll
    for (int k = 0; k < kRounds; ++k) finite = finite && isfinite(at[k]);
    if (!finite) atomicAdd(&words[ExactSum::kLimbs + 1], 1ULL);
  }
  __syncthreads();
  for (unsigned k = threadIdx.x; k < kTallyWords; k += blockDim.x)
    if (words[k] != 0) atomicAdd(&tally[k], words[k]);
}

template <class T, class Value>
void add_squares_of(const Value& value, std::size_t count, const GpuMeasure& to) {
  constexpr std::size_t kTeams = cuda::kThreads / kMeasureLanes;
  constexpr std::size_t kEnough = 132 * 8;  // as many as run at once, on the largest GPUs: each flushes its words once
  const std::size_t blocks = (count + kMeasureBlock - 1) / kMeasureBlock;
  if (blocks == 0) return;
  cuda::use(to.device());
  const auto grid = static_cast<unsigned>(std::min(kEnough, (blocks + kTeams - 1) / kTeams));
  squares_kernel<T><<<grid, cuda::kThreads, 0, cuda::stream_here()>>>(value, count, to.tally());
  cuda::check(cudaGetLastError(), "measuring");
}

}  // namespace for_gpus
}  // namespace cohort::optim
