#include "cohort/nn/autocast.h"

#include <ATen/autocast_mode.h>

namespace cohort {

autocast::autocast(Precision precision, c10::DeviceType device)
    : device_(device),
      enabled_before_(at::autocast::is_autocast_enabled(device_)),
      type_before_(static_cast<std::int8_t>(at::autocast::get_autocast_dtype(device_))) {
  at::autocast::set_autocast_enabled(device_, precision != Precision::fp32);
  if (precision != Precision::fp32) at::autocast::set_autocast_dtype(device_, precision == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::increment_nesting();
}

autocast::~autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, static_cast<at::ScalarType>(type_before_));
  at::autocast::set_autocast_enabled(device_, enabled_before_);
}

}  // namespace cohort
