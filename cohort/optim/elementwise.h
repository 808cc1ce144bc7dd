// The one loop of all update rules: read param, grad and states, compute, write back; everything is touched once.
// A rule hands over a Pass, its constants already rounded to the element type and one call that updates one element:
//   template <class T> struct Pass { T rate;  COHORT_INLINE void operator()(T& w, T g, T& momentum) const { ... } };
//   for_each_element<T, 1>(Pass<T>{...}, slice, info);                    // 1: the number of states
// Only +, -, *, / and sqrt, each correctly rounded, so that vectors of any width give the bits of the plain loop. No std::pow and no
// std::fma in a Pass; a condition on a constant of the step is a template parameter (with_flag), not a branch.
// For the rules' own files, which compile with -O3 -fno-math-errno (CMakeLists.txt): neither may change a bit.
// Where there is nvcc those of CMakeLists.txt's cohort_gpu_rules are compiled once more, for GPUs, with the loops of
// gpu_elementwise.cuh: the same file makes the same rule for both. What a header for several of them defines stands in COHORT_RULES, else
// the two would be one to the linker.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cohort/base/isa.h"
#include "cohort/optim/measure.h"
#include "cohort/optim/optimizer.h"
#ifdef __CUDACC__
#define COHORT_RULES for_gpus
#undef COHORT_INLINE
#define COHORT_INLINE __host__ __device__ __forceinline__
#else
#define COHORT_RULES for_processors
#endif

namespace cohort::optim {

template <class Call>
void with_flag(bool flag, const Call& call) {
  flag ? call(std::true_type{}) : call(std::false_type{});
}
template <class Call>
void with_real(Dtype real, const Call& call) {
  real == Dtype::f32 ? call(float{}) : call(double{});
}

}  // namespace cohort::optim

#ifdef __CUDACC__
#include "cohort/optim/gpu_elementwise.cuh"
#else

namespace cohort::optim {

namespace inner {

template <class T, std::size_t States>
struct Runs {
  T* w;
  T* g;
  std::array<T*, States> s;
  std::size_t count;
  T scale;
};

template <bool clear, class T, std::size_t States, class Pass, std::size_t... I>
COHORT_INLINE void loop(const Pass& given, const Runs<T, States>& runs, std::index_sequence<I...>) {
  const Pass pass = given;  // copies live in registers; references could alias what the loop writes
  const Runs<T, States> r = runs;
#if !defined(__clang__)  // which compares the addresses at run time instead
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < r.count; ++i) {
    pass(r.w[i], r.g[i] * r.scale, r.s[I][i]...);
    if constexpr (clear) r.g[i] = 0;
  }
}

template <bool clear, class T, std::size_t States, class Pass>
void loop_plain(const Pass& pass, const Runs<T, States>& runs) {
  loop<clear>(pass, runs, std::make_index_sequence<States>{});
}
template <bool clear, class T, std::size_t States, class Pass>
COHORT_FOR_AVX2 void loop_avx2(const Pass& pass, const Runs<T, States>& runs) {
  loop<clear>(pass, runs, std::make_index_sequence<States>{});
}
template <bool clear, class T, std::size_t States, class Pass>
void loop_best(const Pass& pass, const Runs<T, States>& runs) {
  current_isa() == Isa::avx2 ? loop_avx2<clear>(pass, runs) : loop_plain<clear>(pass, runs);
}

}  // namespace inner

template <class T, std::size_t States, class Pass>
void for_each_element(const Pass& pass, const Slice& slice, const StepInfo& info) {
  inner::Runs<T, States> runs{static_cast<T*>(slice.param), static_cast<T*>(slice.grad), {}, slice.count, static_cast<T>(info.grad_scale)};
  for (std::size_t k = 0; k < States; ++k) runs.s[k] = static_cast<T*>(slice.state[k]);
  info.clear_grad ? inner::loop_best<true>(pass, runs) : inner::loop_best<false>(pass, runs);
}

// The squares of what a pass would leave in w, added to a sum; nothing is written. So a rule measures a step before it makes it.
template <class T, std::size_t States, class Pass>
void add_squares_after(const Pass& pass, const Slice& slice, StepInfo info, ExactSum& sum) {
  std::array<std::array<T, kMeasureBlock>, States + 2> copies;  // of w, g and the states
  std::array<void*, States> states{};
  for (std::size_t k = 0; k < States; ++k) states[k] = copies[k + 2].data();
  Slice block = slice;
  block.param = copies[0].data();
  block.grad = copies[1].data();
  block.state = states;
  info.clear_grad = false;
  for (std::size_t at = 0; at < slice.count; at += kMeasureBlock) {
    block.count = std::min(kMeasureBlock, slice.count - at);
    const auto copy = [&](void* from, auto& to) { std::memcpy(to.data(), static_cast<const T*>(from) + at, block.count * sizeof(T)); };
    copy(slice.param, copies[0]);
    copy(slice.grad, copies[1]);
    for (std::size_t k = 0; k < States; ++k) copy(slice.state[k], copies[k + 2]);
    for_each_element<T, States>(pass, block, info);
    sum.add(block_squares(copies[0].data(), block.count, slice.dtype));
  }
}

}  // namespace cohort::optim

#endif
