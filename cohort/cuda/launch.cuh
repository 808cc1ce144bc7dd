// How kernels over runs of elements are launched. For .cu files.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cohort/cuda/runtime.h"

namespace cohort::cuda {

inline constexpr int kThreads = 256;                     // of a block: eight of them fill a multiprocessor
inline constexpr std::size_t kMostBlocks = 1ULL << 30U;  // of a grid's first dimension there may be twice as many

inline cudaStream_t stream_here() { return static_cast<cudaStream_t>(current_stream()); }
inline unsigned blocks_for(std::size_t threads) {
  return static_cast<unsigned>(std::min(kMostBlocks, (threads + kThreads - 1) / kThreads));
}

// call(i) for every i below count.
template <class Call>
__global__ void __launch_bounds__(kThreads) for_each_kernel(Call call, std::size_t count) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) call(i);
}

template <class Call>
void for_each(const Call& call, std::size_t count, Device device) {
  if (count == 0) return;
  use(device);
  for_each_kernel<<<blocks_for(count), kThreads, 0, stream_here()>>>(call, count);
  check(cudaGetLastError(), "a pass over elements");
}

}  // namespace cohort::cuda
