// Tensors in collectives: the bridge for programs on libtorch.
//   auto grads = nn::tensor(comm.allocate(4 * n), {n}, at::kFloat);  // memory that peers read in place
//   nn::all_reduce(comm, grads, collective::Op::average);
// Owner: a tensor made here keeps its Region alive, so it may outlive the Region and the communicator. Threads: as the Communicator's.
// Failure: Kind::usage, before anything is sent, for what a collective cannot take: strided tensors, types without a Dtype, devices but the
// CPU and CUDA's. Nothing is converted in silence; what lies on a GPU travels as collective/communicator.h says. To add a type:
// collective/types.h first, then its row in tensor.cc.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "cohort/collective/communicator.h"

namespace cohort::nn {

collective::Dtype dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(collective::Dtype dtype);
collective::Device device_of_tensor(const at::Tensor& tensor);  // Kind::usage for what is neither the CPU nor CUDA's
at::Device torch_device(collective::Device device);

// The tensor's own memory, borrowed as long as the tensor lives. Writing through it is invisible to autograd.
collective::Piece piece(const at::Tensor& tensor);

// A view of the first elements of a Region. Where the Region is too small: Kind::usage naming both byte counts.
at::Tensor tensor(const collective::Region& region, at::IntArrayRef sizes, at::ScalarType type,
                  collective::Device device = collective::Device::cpu);

// In place, on every rank.
void all_reduce(collective::Communicator& comm, const at::Tensor& tensor, collective::Op op, const collective::Call& call = {});
// One operation to the peers, whatever the number of tensors.
void all_reduce(collective::Communicator& comm, std::span<const at::Tensor> tensors, collective::Op op, const collective::Call& call = {});
void broadcast(collective::Communicator& comm, const at::Tensor& tensor, Rank root, const collective::Call& call = {});
// Every rank's tensor in rank order along a new first dimension: sizes {n, ...} for tensors {...}, the same on every rank.
at::Tensor all_gather(collective::Communicator& comm, const at::Tensor& tensor, const collective::Call& call = {});

}  // namespace cohort::nn
