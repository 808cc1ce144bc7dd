// Tensors that an operation under way reads or writes. While one is listed here its storage refuses to be resized: torch then raises
// "Trying to resize storage that is not resizable" where memory would otherwise be freed under the operation.
// Owner: the operation. Threads: any. Failure: none.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace cohort::python {

class InFlight {
 public:
  InFlight() = default;
  explicit InFlight(std::vector<at::Tensor> tensors);
  ~InFlight() { land(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  void land() noexcept;  // before anybody hears that the operation is done

 private:
  std::vector<c10::Storage> storages_;
};

}  // namespace cohort::python
