// The loops of elementwise.h on a GPU: one launch reads param, grad and states, computes, and writes back. The Pass is the rule's own, the
// operations are rounded one by one (--fmad=false, IEEE division and root), and an element depends on itself alone: so the bits are the
// processor's. 16 bytes of each run a thread, where the runs lie on 16-byte boundaries; the next element is another thread's.
// Threads: any; enqueued on the calling thread's stream (cuda/runtime.h). Failure: as runtime.h.
#pragma once
#include "cohort/cuda/launch.cuh"
#include "cohort/optim/gpu_measure.cuh"

namespace cohort::optim {
inline namespace for_gpus {

template <class T, std::size_t States>
struct Runs {
  T* w;
  T* g;
  T* s[States == 0 ? 1 : States];
  std::size_t count;
  T scale;
  bool clear;
};

template <class T, std::size_t States>
Runs<T, States> runs_of(const Slice& slice, const StepInfo& info) {
  Runs<T, States> runs{static_cast<T*>(slice.param), static_cast<T*>(slice.grad), {}, slice.count, static_cast<T>(info.grad_scale),
                       info.clear_grad};
  for (std::size_t k = 0; k < States; ++k) runs.s[k] = static_cast<T*>(slice.state[k]);
  return runs;
}

template <class T, int width>
struct alignas(sizeof(T) * width) Wide {
  T at[width];
};

template <class T, std::size_t States, class Pass, int width, std::size_t... I>
__device__ __forceinline__ void update_at(const Pass& pass, const Runs<T, States>& r, std::size_t i, std::index_sequence<I...>) {
  using Lot = Wide<T, width>;
  Lot w = reinterpret_cast<Lot*>(r.w)[i];
  const Lot g = reinterpret_cast<const Lot*>(r.g)[i];
  Lot s[States == 0 ? 1 : States];
  ((s[I] = reinterpret_cast<Lot*>(r.s[I])[i]), ...);
#pragma unroll
  for (int k = 0; k < width; ++k) pass(w.at[k], g.at[k] * r.scale, s[I].at[k]...);
  reinterpret_cast<Lot*>(r.w)[i] = w;
  ((reinterpret_cast<Lot*>(r.s[I])[i] = s[I]), ...);
  if (r.clear) reinterpret_cast<Lot*>(r.g)[i] = Lot{};
}

template <class T, std::size_t States, class Pass, int width>
__global__ void __launch_bounds__(cuda::kThreads) update_kernel(Pass pass, Runs<T, States> r) {
  constexpr auto kStates = std::make_index_sequence<States>{};
  const std::size_t lots = r.count / width, step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::size_t i = first; i < lots; i += step) update_at<T, States, Pass, width>(pass, r, i, kStates);
  if (width > 1 && first < r.count % width) update_at<T, States, Pass, 1>(pass, r, lots * width + first, kStates);
}

template <class T, std::size_t States>
bool on_boundaries(const Runs<T, States>& r, std::size_t bytes) {
  auto bits = reinterpret_cast<std::uintptr_t>(r.w) | reinterpret_cast<std::uintptr_t>(r.g);
  for (std::size_t k = 0; k < States; ++k) bits |= reinterpret_cast<std::uintptr_t>(r.s[k]);
  return bits % bytes == 0;
}

template <class T, std::size_t States, class Pass>
void for_each_element(const Pass& pass, const Slice& slice, const StepInfo& info) {
  constexpr int kWidth = 16 / sizeof(T);
  const auto runs = runs_of<T, States>(slice, info);
  cuda::use(slice.device);
  if (on_boundaries(runs, 16))
    update_kernel<T, States, Pass, kWidth><<<cuda::blocks_for(runs.count / kWidth + 1), cuda::kThreads, 0, cuda::stream_here()>>>(pass, runs);
  else
    update_kernel<T, States, Pass, 1><<<cuda::blocks_for(runs.count), cuda::kThreads, 0, cuda::stream_here()>>>(pass, runs);
  cuda::check(cudaGetLastError(), "an update");
}

// What the pass would leave in w; nothing is written.
template <class T, std::size_t States, class Pass>
struct After {
  Pass pass;
  Runs<T, States> r;
  __device__ T operator()(std::size_t i) const { return at(i, std::make_index_sequence<States>{}); }
  template <std::size_t... I>
  __device__ T at(std::size_t i, std::index_sequence<I...>) const {
    T w = r.w[i];
    T s[States == 0 ? 1 : States];
    ((s[I] = r.s[I][i]), ...);
    pass(w, r.g[i] * r.scale, s[I]...);
    return w;
  }
};

template <class T, std::size_t States, class Pass>
void add_squares_after(const Pass& pass, const Slice& slice, const StepInfo& info, ExactSum& sum) {
  Measure found;
  GpuMeasure& here = GpuMeasure::of_this_thread(slice.device);
  here.begin();
  add_squares_of<T>(After<T, States, Pass>{pass, runs_of<T, States>(slice, info)}, slice.count, here);
  here.end();
  here.await(found);
  sum.add(found.squared);
}

}  // namespace for_gpus
}  // namespace cohort::optim
