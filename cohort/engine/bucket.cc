#include "cohort/engine/bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "cohort/base/error.h"
#include "cohort/nn/tensor.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

Dtype type_of(const std::vector<TrainedTensor>& tensors) {
  if (tensors.empty()) throw_failure(Kind::bug, "a bucket without parameters");
  const auto type = tensors[0].param.scalar_type();
  for (const TrainedTensor& t : tensors) {
    if (t.param.scalar_type() != type) throw_failure(Kind::bug, "{} and {} are of different types in one bucket", tensors[0].name, t.name);
    if (!t.param.is_contiguous())
      throw_failure(Kind::usage, "parameter {} is not contiguous: call .contiguous() before handing it over", t.name);
  }
  if (type != at::kFloat && type != at::kDouble)
    throw_failure(Kind::usage, "parameter {} is {}: float and double are trained", tensors[0].name, c10::toString(type));
  return nn::dtype_of(type);
}

// The parameters', but where the host has their gradients.
Device device_of_bucket(const std::vector<TrainedTensor>& tensors, const sync::Placement& placement) {
  return placement.copies_to_device() ? Device::cpu : nn::device_of_tensor(tensors[0].param);
}

std::vector<sync::Member> members_of(const std::vector<TrainedTensor>& tensors) {
  std::vector<sync::Member> members;
  for (const TrainedTensor& t : tensors)
    members.push_back({.name = t.name,
                       .shape = t.param.sizes().vec(),
                       .group = t.group,
                       .order = t.order,
                       .is_box = t.is_box,
                       .same_gradient = t.same_gradient,
                       .same_part = t.same_part});
  return members;
}

std::vector<at::Tensor> params_of(const std::vector<TrainedTensor>& tensors) {
  std::vector<at::Tensor> params;
  for (const TrainedTensor& t : tensors) params.push_back(t.param);
  return params;
}

}  // namespace

at::Tensor borrowed(const Piece& values) {
  return at::from_blob(values.data, {static_cast<std::int64_t>(values.count)},
                       at::TensorOptions().dtype(nn::scalar_type_of(values.dtype)).device(nn::torch_device(values.device)));
}

Bucket::Bucket(int index, const std::vector<TrainedTensor>& tensors, collective::Communicator& comm, sync::Placement placement,
               sync::BufferPool* pool, const sync::Cutting& cutting)
    : sync::Bucket(index, members_of(tensors), type_of(tensors), comm, placement, pool, device_of_bucket(tensors, placement), cutting),
      params_(params_of(tensors)) {
  attach();
}

// A storage of its own, not a view in autograd's sense: libtorch's zero_grad() detaches gradients in place, which views refuse.
at::Tensor Bucket::gradient_view(std::size_t member) const {
  return nn::tensor(gradients_of(members()[member]), params_[member].sizes(), nn::scalar_type_of(type()), device());
}
at::Tensor Bucket::parameter_view(std::size_t member) const {
  return nn::tensor(parameters_of(members()[member]), params_[member].sizes(), nn::scalar_type_of(type()), device());
}

void Bucket::attach() {
  if (pooled()) return;
  const at::NoGradGuard no_grad;  // a lane's thread starts with grad mode on, and a gradient made with create_graph has a history
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const at::Tensor now = params_[i].grad();
    const bool dense = now.defined() && now.layout() == at::kStrided;
    if (dense && now.data_ptr() == gradient_piece(members()[i]).data && now.is_contiguous()) continue;
    const at::Tensor place = gradient_view(i);
    if (now.defined()) {
      place.copy_(dense ? now : now.to_dense());
    } else {
      place.zero_();
    }
    params_[i].mutable_grad() = place;
  }
}

void Bucket::take(std::size_t member) {
  const at::Tensor grad = params_[member].grad();
  if (!grad.defined()) return;
  const at::NoGradGuard no_grad;
  acquire_gradients();
  at::Tensor place = gradient_view(member);
  const at::Tensor dense = grad.layout() == at::kStrided ? grad : grad.to_dense();
  if (dense.device() != place.device()) {
    came(member) ? place.add_(dense.to(place.device())) : place.copy_(dense);
  } else if (came(member)) {
    place.add_(dense);
  } else {
    at::add_out(place, dense, at::zeros({}, dense.options()));  // as adding to a view of zeros would, -0 and all; one pass
  }
  mark_came(member);
  params_[member].mutable_grad().reset();
}

void Bucket::gather() {
  if (!pooled()) return attach();
  acquire_gradients();
  for (std::size_t i = 0; i < params_.size(); ++i) {
    take(i);  // a gradient that was set without a backward
    const Piece place = gradient_piece(members()[i]);
    if (!came(i)) sync::zero(place);
  }
}

void Bucket::rebase(const collective::Region& fresh) {
  attach();
  sync::Bucket::rebase(fresh);
  for (std::size_t i = 0; i < params_.size(); ++i) params_[i].mutable_grad() = gradient_view(i);
}

// --- on a GPU

cuda::Stream torch_stream(Device device) {
  if (device.kind == DeviceKind::cpu) return nullptr;
  const c10::impl::VirtualGuardImpl gpu(c10::DeviceType::CUDA);
  return gpu.getStream(nn::torch_device(device)).native_handle();
}

void Bucket::follow_stream() {
  if (on_gpu()) stream_ = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(nn::torch_device(device()));
}

OnStreamOf::OnStreamOf(const Bucket& bucket) : ours_(bucket.stream() ? bucket.stream()->native_handle() : nullptr) {
  if (bucket.stream()) torch_.reset_stream(*bucket.stream());
}

optim::GpuMeasure& Bucket::gpu_measure(bool of_reduced) const {
  auto& measure = measures_[of_reduced ? 1 : 0];
  if (!measure) measure = std::make_unique<optim::GpuMeasure>(device());
  return *measure;
}

namespace {

at::Tensor run_of(const at::Tensor& param, const sync::Range& range) {
  return param.detach().view(-1).narrow(0, static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.count));
}

}  // namespace

void Bucket::own_parameters(const optim::Optimizer& rule, collective::Communicator& comm) {
  const at::NoGradGuard no_grad;
  allocate_parameters(comm);
  for (std::size_t i = 0; i < params_.size(); ++i) move_in(i);
  allocate_state(rule);
  if (buddy().here() && placement().gathers_parameters())  // it begins as its owner begins: all ranks hold the same parameters here
    for (std::size_t i = 0; i < params_.size(); ++i)
      borrowed(buddy().parameter(members()[i])).copy_(run_of(params_[i], buddy().range(members()[i])));
  page_out_state();
}

void Bucket::move_in(std::size_t member) {
  const sync::Member& m = members()[member];
  const at::Tensor& param = params_[member];
  if (placement().gathers_parameters()) return void(borrowed(owned_parameter(m)).copy_(run_of(param, owned(m))));
  const at::Tensor place = parameter_view(member);
  place.copy_(param.detach());
  if (placement().copies_to_device()) return;
  param.set_data(place);
  if (!pooled()) param.mutable_grad() = gradient_view(member);
}

bool Bucket::lies_here(std::size_t member) const {
  const at::Tensor& param = params_[member];
  return param.numel() == 0 || param.data_ptr() == parameters().part(members()[member].first, 1).data;
}

void Bucket::refuse_parameters_elsewhere() const {
  if (!owns_parameters() || placement().gathers_parameters() || placement().copies_to_device()) return;
  for (std::size_t i = 0; i < params_.size(); ++i)
    if (!lies_here(i))
      throw_failure(
          Kind::usage,
          "parameter {} was given other memory (torch::load() and set_data() do that), which the optimizer does not update: load "
          "weights before, or copy_() them into the parameters; after DataParallel was made broadcast_parameters() takes them over",
          members()[i].name);
}

void Bucket::attach_parameters() {
  if (!owns_parameters() || placement().gathers_parameters()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < params_.size(); ++i)
    if (!lies_here(i)) move_in(i);
}

void Bucket::copy_to_device() const {
  if (!placement().copies_to_device() || placement().gathers_parameters()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < params_.size(); ++i) params_[i].detach().copy_(parameter_view(i));
}

void Bucket::copy_from_device() const {
  if (!placement().copies_to_device() || placement().gathers_parameters()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < params_.size(); ++i) parameter_view(i).copy_(params_[i].detach());
}

}  // namespace cohort::engine
