// x W^T + b of two dimensions, by the faster of the two libraries that torch ships.
// torch multiplies fp32 matrices with MKL. On AMD's processors with AVX-512 oneDNN is 4 to 10 % faster (512 rows by 512 x 2048: 104 against
// 98 GFLOP/s on one core), except for matrices of few columns; a Transformer spends four fifths of its step there. The choice follows from
// the processor and the shapes alone, never from a clock: the same bits run after run.
// Threads: any. Failure: torch's own, for shapes that do not fit.
#pragma once
#include <ATen/core/Tensor.h>

namespace cohort::nn {

// bias may be undefined. With gradients to be recorded it is torch's own product, which has them.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace cohort::nn
