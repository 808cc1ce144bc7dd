// Who is told of the products that nn::linear() makes, which torch does not know as its own: y came out of x. One at a time for the
// process; it says itself whether it wants to know. Owner: who set it. Threads: any. Failure: none.
#pragma once
#include <ATen/core/Tensor.h>

namespace cohort::nn {

using ProductWatcher = void (*)(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& y);
void set_product_watcher(ProductWatcher watcher);

}  // namespace cohort::nn
