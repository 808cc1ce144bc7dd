// Arithmetic of collectives: element-wise reductions in the canonical bracket.
//
// The canonical bracket over n sources in rank order: B(lo, hi) = x_lo if one source, else B(lo, mid) op B(mid, hi) with
// mid = lo + the largest power of two smaller than hi - lo. Every addition is rounded to the element type. The left operand is
// always the lower rank, so the same bits come out, NaN payloads and signed zeros included, wherever it is computed.
// sum and product wrap for integers. min and max give NaN when either operand is NaN (the left one's when both are), and the left one
// of equal operands: min(+0, -0) is +0. NaN results are quiet and carry the payload of the first NaN operand; those that come from none
// (inf - inf, 0 * inf) are the negative quiet NaN without payload.
// bool: sum, max = or; product, min = and (any non-zero byte is true; results are 0 or 1, also from one source).
// f16 and bf16: each operation is done in f32 and rounded to nearest even. Subnormals are numbers like any other.
// Scaling: f64 in f64; f32 as the double product rounded once; f16 and bf16 as the f32 product (by the factor rounded to f32) rounded;
// integers in double, truncated towards zero, saturating, NaN to 0; bool unchanged. A factor of 1 changes no bits.
// Threads: pure functions, any; the thread's rounding mode and denormal flags are taken to be the default ones.
// To add an instruction set: compile kernels.inc once more with its flags (kernels.cmake), add a row in kernels.cc.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "cohort/collective/types.h"

namespace cohort::collective {

// targets[j][i] = scaled_post(bracket over k of scaled_pre(sources[k][i])), for every j. A target may be exactly one of the
// sources (in place), else it overlaps none. average is not known here: it is sum with post = 1/n.
struct Reduction {
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  double pre = 1.0;
  double post = 1.0;
};

struct Kernels {
  std::string_view name;  // "plain", "avx2", "avx512"
  void (*reduce)(const Reduction& how, std::span<const void* const> sources, std::span<void* const> targets, std::size_t count);
  void (*scale)(Dtype dtype, void* data, std::size_t count, double factor);
};

// Every set compiled in that this processor can run, plain first, best last.
std::span<const Kernels> runnable_kernels();
// The best, or the one set by use_kernels().
const Kernels& kernels();
// Overrides kernels() for this process; throws Kind::usage with the known names. "" goes back to the best.
void use_kernels(std::string_view name);

}  // namespace cohort::collective
