// While it lives, torch's operators on the CPU, or on another device that is named, compute in the given precision where that is safe
// (matrix products, convolutions), and in fp32 where it is not (losses, norms); parameters stay what they are. What torch.autocast("cpu",
// dtype) is in Python.
//   {
//     const cohort::autocast half(cohort::Precision::bf16);
//     loss = nn::functional::cross_entropy(net(x), y);
//   }                                    // leave it before backward(): gradients follow the types of forward by themselves
//   loss.backward();
// Guards nest: an inner one rules until it goes, and Precision::fp32 is an island in full precision. 16-bit copies of parameters are kept
// for reuse inside the outermost guard and dropped when it is left, so hold it for a forward pass, not for an epoch: an update in between
// would not be seen. Owner: the scope. Threads: rules the thread it is made on, and is left there, innermost first. Failure: none of its
// own; an operator that has no such kernel throws c10::Error from forward (an LSTM in fp16).
#pragma once
#include <c10/core/DeviceType.h>

#include <cstdint>

#include "cohort/base/precision.h"

namespace cohort {

class autocast {
 public:
  explicit autocast(Precision precision, c10::DeviceType device = c10::DeviceType::CPU);
  ~autocast();
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;

 private:
  const c10::DeviceType device_;
  const bool enabled_before_;
  const std::int8_t type_before_;  // a c10::ScalarType
};

}  // namespace cohort
