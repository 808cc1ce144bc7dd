// Tensors that an operation in flight reads or writes. While one is listed here its storage refuses to be resized: torch then raises
// "Trying to resize storage that is not resizable" where memory would otherwise be freed under the operation.
// Owner: the operation. Threads: any. Failure: none.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace cohort::python {

class ResizeGuard {
 public:
  ResizeGuard() = default;
  explicit ResizeGuard(std::vector<at::Tensor> tensors);
  ~ResizeGuard() { release(); }
  ResizeGuard(const ResizeGuard&) = delete;
  ResizeGuard& operator=(const ResizeGuard&) = delete;
  void release() noexcept;  // before any waiter learns that the operation is done

 private:
  std::vector<c10::Storage> storages_;
};

}  // namespace cohort::python
