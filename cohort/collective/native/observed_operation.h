// Calls the observer of a communicator, if it has one, at the beginning and at the end of one operation.
// Owner: the stack of the thread that runs the operation. Threads: that one. Failure: none.
#pragma once
#include <atomic>

#include "cohort/collective/communicator.h"

namespace cohort::collective {

// One of a communicator and all its children, which may outlive it.
using SharedObserver = std::atomic<OperationObserver*>;

class ObservedOperation {
 public:
  // Without an observer: one load and one branch; the bytes are not even added up.
  ObservedOperation(const SharedObserver& shared, std::string_view collective, std::string_view name, std::span<const Piece> pieces = {})
      : observer_(shared.load(std::memory_order_acquire)) {
    if (observer_ == nullptr) return;
    operation_ = {collective, name, 0};
    for (const Piece& piece : pieces) operation_.bytes += piece.bytes();
    observer_->begin(operation_);
  }
  ~ObservedOperation() {
    if (observer_ != nullptr) observer_->end(operation_);
  }
  ObservedOperation(const ObservedOperation&) = delete;
  ObservedOperation& operator=(const ObservedOperation&) = delete;

 private:
  OperationObserver* const observer_;  // the one called at the beginning is called at the end, also when another is set meanwhile
  RunningOperation operation_;
};

}  // namespace cohort::collective
