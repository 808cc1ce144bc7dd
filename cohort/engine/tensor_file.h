// Tensors in checkpoints: whole ones, the runs of elements that a rank owns of sharded ones, and what every rank has of its own
// (Engine::visit(); base/state.h). The latter lie in files of the group "local", under names that begin with the rank.
// Owner: values; views borrow the tensor's bytes, which are contiguous and on the host. Threads: any. Failure: Kind::usage for a tensor
// that is not of the checkpoint's shape or type.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "cohort/base/state.h"
#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::engine {

inline constexpr const char* kModelGroup = "model";          // parameters and buffers: loads anywhere
inline constexpr const char* kOptimizerGroup = "optimizer";  // "<parameter>/<state>"
inline constexpr const char* kStrategyGroup = "strategy";    // likewise
inline constexpr const char* kLocalGroup = "local";          // "<rank>/<group>/<parameter>/<state>@<first element>"

checkpoint::TensorView whole_view(const std::string& name, const at::Tensor& t);
// Elements [first, first + count) of a tensor of these sizes.
checkpoint::TensorView run_view(const std::string& name, at::IntArrayRef sizes, std::int64_t first, std::int64_t count,
                                const at::Tensor& flat);

// Whether read_run() would take it; throws if not.
void check_run(const checkpoint::Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, const at::Tensor& t);
// From element `first` of the stored tensor, which has these sizes, into t. It may be on a GPU: then through a copy on the host.
void read_run(const checkpoint::Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, std::int64_t first,
              const at::Tensor& t);

// The same for an item of the engine's state, in its group and by its key.
checkpoint::TensorView run_view(const StateItem& item);
void check_run(const checkpoint::Contents& from, const StateItem& item);
void read_run(const checkpoint::Contents& from, const StateItem& item);

// What is each rank's own (Share::each).
checkpoint::TensorView local_view(int rank, const StateItem& item);
bool has_local(const checkpoint::Contents& from, int rank, const StateItem& item);
void read_local(const checkpoint::Contents& from, int rank, const StateItem& item);
// The sum of what ranks had of these elements, whichever runs they had; false, and nothing is read, where all runs together do not hold
// every element so many times.
bool read_sum_of_locals(const checkpoint::Contents& from, int times, const StateItem& item);
bool read_mean_of_locals(const checkpoint::Contents& from, int ranks, const StateItem& item);

}  // namespace cohort::engine
