#include "cohort/cuda/elements.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cohort/base/error.h"
#include "cohort/cuda/launch.cuh"

namespace cohort::cuda {
namespace {

template <class T>
struct Fill {
  T* to;
  T value;
  __device__ void operator()(std::size_t i) const { to[i] = value; }
};
template <class T>
struct Swap {
  T *a, *b;
  __device__ void operator()(std::size_t i) const {
    const T was = a[i];
    a[i] = b[i];
    b[i] = was;
  }
};
template <class T>
struct Subtract {
  T* to;
  const T *a, *b;
  __device__ void operator()(std::size_t i) const { to[i] = a[i] - b[i]; }
};
template <class T>
struct AddScaled {
  T* to;
  T scale;
  const T* from;
  __device__ void operator()(std::size_t i) const { to[i] = to[i] + scale * from[i]; }
};
template <class T>
struct Add {
  T* to;
  const T* from;
  __device__ void operator()(std::size_t i) const { to[i] = to[i] + from[i]; }
};
template <class T>
struct Lerp {
  T* to;
  T share;
  const T* from;
  __device__ void operator()(std::size_t i) const { to[i] = to[i] + share * (from[i] - to[i]); }
};
template <class T>
struct Scale {
  T* to;
  T by;
  __device__ void operator()(std::size_t i) const { to[i] = to[i] * by; }
};
template <class T>
struct Divide {
  T* to;
  const T* from;
  T by;
  __device__ void operator()(std::size_t i) const { to[i] = from[i] / by; }
};

__device__ inline void convert(float from, __half& to) { to = __float2half_rn(from); }
__device__ inline void convert(float from, __nv_bfloat16& to) { to = __float2bfloat16_rn(from); }
__device__ inline void convert(__half from, float& to) { to = __half2float(from); }
__device__ inline void convert(__nv_bfloat16 from, float& to) { to = __bfloat162float(from); }
template <class To, class From>
struct Cast {
  To* to;
  const From* from;
  __device__ void operator()(std::size_t i) const { convert(from[i], to[i]); }
};

template <class Call>
void with_real(const Piece& piece, const Call& call) {
  if (piece.dtype == Dtype::f32) return call(float{});
  if (piece.dtype == Dtype::f64) return call(double{});
  throw_failure(Kind::bug, "a pass over elements of {}", name_of(piece.dtype));
}
template <class T>
T* at(const Piece& piece) {
  return static_cast<T*>(piece.data);
}

}  // namespace

void fill(const Piece& to, double value) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(Fill<T>{at<T>(to), static_cast<T>(value)}, to.count, to.device);
  });
}

void swap(const Piece& a, const Piece& b) {
  with_real(a, [&](auto zero) {
    using T = decltype(zero);
    for_each(Swap<T>{at<T>(a), at<T>(b)}, a.count, a.device);
  });
}

void add(const Piece& to, const Piece& from) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(Add<T>{at<T>(to), at<T>(from)}, to.count, to.device);
  });
}

void subtract(const Piece& to, const Piece& a, const Piece& b) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(Subtract<T>{at<T>(to), at<T>(a), at<T>(b)}, to.count, to.device);
  });
}

void add_scaled(const Piece& to, double scale, const Piece& from) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(AddScaled<T>{at<T>(to), static_cast<T>(scale), at<T>(from)}, to.count, to.device);
  });
}

void lerp(const Piece& to, double share, const Piece& from) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(Lerp<T>{at<T>(to), static_cast<T>(share), at<T>(from)}, to.count, to.device);
  });
}

void scale(const Piece& to, double by) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(Scale<T>{at<T>(to), static_cast<T>(by)}, to.count, to.device);
  });
}

void divide(const Piece& to, const Piece& from, double by) {
  with_real(to, [&](auto zero) {
    using T = decltype(zero);
    for_each(Divide<T>{at<T>(to), at<T>(from), static_cast<T>(by)}, to.count, to.device);
  });
}

void cast(const Piece& to, const Piece& from) {
  const auto is = [&](Dtype t, Dtype f) { return to.dtype == t && from.dtype == f; };
  const auto run = [&](auto cast) { for_each(cast, to.count, to.device); };
  if (is(Dtype::f16, Dtype::f32)) return run(Cast<__half, float>{at<__half>(to), at<float>(from)});
  if (is(Dtype::bf16, Dtype::f32)) return run(Cast<__nv_bfloat16, float>{at<__nv_bfloat16>(to), at<float>(from)});
  if (is(Dtype::f32, Dtype::f16)) return run(Cast<float, __half>{at<float>(to), at<__half>(from)});
  if (is(Dtype::f32, Dtype::bf16)) return run(Cast<float, __nv_bfloat16>{at<float>(to), at<__nv_bfloat16>(from)});
  throw_failure(Kind::bug, "a cast from {} to {}", name_of(from.dtype), name_of(to.dtype));
}

}  // namespace cohort::cuda
