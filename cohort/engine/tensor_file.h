// Tensors in checkpoints: whole ones, and the runs of elements that a rank owns of sharded ones (Engine::each_shard()).
// Owner: values; views borrow the tensor's bytes, which are contiguous and on the host. Threads: any. Failure: Kind::usage for a tensor
// that is not of the checkpoint's shape or type.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::engine {

inline constexpr const char* kModelGroup = "model";          // parameters and buffers: loads anywhere
inline constexpr const char* kOptimizerGroup = "optimizer";  // "<parameter>/<state>"

checkpoint::TensorView whole_view(const std::string& name, const at::Tensor& t);
// Elements [first, first + count) of a tensor of these sizes.
checkpoint::TensorView run_view(const std::string& name, at::IntArrayRef sizes, std::int64_t first, std::int64_t count,
                                const at::Tensor& flat);

// Whether read_run() would take it; throws if not.
void check_run(const checkpoint::Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, const at::Tensor& t);
// From element `first` of the stored tensor, which has these sizes, into t. It may be on a GPU: then through a copy on the host.
void read_run(const checkpoint::Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, std::int64_t first,
              const at::Tensor& t);

}  // namespace cohort::engine
