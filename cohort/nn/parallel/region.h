// The two ends of a stretch of a model that ranks compute together, each with its part of the layers (Shoeybi et al. 2019, f and g):
//   copy_to_region(x)         y = x             dx = sum over the ranks of dy     where every rank begins with the same x
//   reduce_from_region(x)     y = sum of x      dx = dy                           where every rank goes on with the same y
// Each is the other's derivative, so derivatives of any order are right. Sums follow the canonical order: the same bits on all ranks.
// Owner: none; the communicator is borrowed until backward is done, and is used for nothing else, since its collectives come in the order
// of forward and backward. Threads: one. Failure: as the Communicator's. Every rank must run every forward and backward.
#pragma once
#include <ATen/core/Tensor.h>

#include "cohort/collective/communicator.h"

namespace cohort::nn {

at::Tensor copy_to_region(const at::Tensor& x, collective::Communicator& comm);
at::Tensor reduce_from_region(const at::Tensor& x, collective::Communicator& comm);

}  // namespace cohort::nn
