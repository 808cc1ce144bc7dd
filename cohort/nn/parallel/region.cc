#include "cohort/nn/parallel/region.h"

#include <torch/torch.h>

#include "cohort/nn/tensor.h"

namespace cohort::nn {
namespace {

namespace autograd = torch::autograd;
using collective::Communicator;

void keep(autograd::AutogradContext* context, Communicator* comm) {
  context->saved_data["comm"] = reinterpret_cast<std::int64_t>(comm);  // the caller keeps it alive until backward is done
}

Communicator& kept(autograd::AutogradContext* context) {
  return *reinterpret_cast<Communicator*>(context->saved_data["comm"].toInt());  // NOLINT(performance-no-int-to-ptr)
}

struct CopyToRegion : autograd::Function<CopyToRegion> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, Communicator* comm) {
    keep(context, comm);
    return x.view_as(x);
  }
  static autograd::variable_list backward(autograd::AutogradContext* context, const autograd::variable_list& given) {
    return {reduce_from_region(given[0], kept(context)), at::Tensor()};
  }
};

struct ReduceFromRegion : autograd::Function<ReduceFromRegion> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, Communicator* comm) {
    keep(context, comm);
    at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
    all_reduce(*comm, sum, collective::Op::sum, {.name = "sum over the tensor-parallel ranks"});
    return sum;
  }
  static autograd::variable_list backward(autograd::AutogradContext* context, const autograd::variable_list& given) {
    return {copy_to_region(given[0], kept(context)), at::Tensor()};
  }
};

}  // namespace

at::Tensor copy_to_region(const at::Tensor& x, Communicator& comm) { return CopyToRegion::apply(x, &comm); }
at::Tensor reduce_from_region(const at::Tensor& x, Communicator& comm) { return ReduceFromRegion::apply(x, &comm); }

}  // namespace cohort::nn
