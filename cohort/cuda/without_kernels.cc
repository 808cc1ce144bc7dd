// elements.h in a build without nvcc: no piece of a GPU can come here, as nothing allocates one.
#include "cohort/cuda/config.h"
#include "cohort/cuda/elements.h"
#include "cohort/cuda/runtime.h"

#if !COHORT_HAS_CUDA
namespace cohort::cuda {

void fill(const Piece& /*to*/, double /*value*/) { throw_unavailable("fill"); }
void swap(const Piece& /*a*/, const Piece& /*b*/) { throw_unavailable("swap"); }
void add(const Piece& /*to*/, const Piece& /*from*/) { throw_unavailable("add"); }
void subtract(const Piece& /*to*/, const Piece& /*a*/, const Piece& /*b*/) { throw_unavailable("subtract"); }
void add_scaled(const Piece& /*to*/, double /*scale*/, const Piece& /*from*/) { throw_unavailable("add_scaled"); }
void lerp(const Piece& /*to*/, double /*share*/, const Piece& /*from*/) { throw_unavailable("lerp"); }
void scale(const Piece& /*to*/, double /*by*/) { throw_unavailable("scale"); }
void divide(const Piece& /*to*/, const Piece& /*from*/, double /*by*/) { throw_unavailable("divide"); }
void cast(const Piece& /*to*/, const Piece& /*from*/) { throw_unavailable("cast"); }

}  // namespace cohort::cuda
#endif
