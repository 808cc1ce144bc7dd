// What holds a libtorch module: a module holder (TORCH_MODULE(Net) makes one of NetImpl), std::shared_ptr, std::unique_ptr.
// DataParallel and Sharded take it where they take the module. A temporary is refused: the module must outlive them.
// Owner: everyone. Threads: any. Failure: Kind::usage for one that holds nothing.
#pragma once
#include <concepts>

#include "cohort/base/error.h"

namespace torch::nn {
class Module;
}

namespace cohort::ddp {

template <class Holder>
concept ModuleHolder = requires(Holder& holder) {
  { *holder } -> std::convertible_to<torch::nn::Module&>;
  holder.get();
};

template <ModuleHolder Holder>
torch::nn::Module& module_of(Holder& holder) {
  if (!holder) throw_failure(Kind::usage, "the module holder is empty: give it a module first");
  return *holder;
}

}  // namespace cohort::ddp
