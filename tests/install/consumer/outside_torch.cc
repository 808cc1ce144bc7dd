// The same on libtorch: the tensor lies in the communicator's memory.
#include <ATen/ops/full.h>
#include <cohort/cohort.h>
#include <cohort/nn/tensor.h>

#include <cstdio>

int main() {
  const cohort::Job job = cohort::init();
  cohort::collective::Communicator& comm = job.comm();
  const at::Tensor ones = cohort::nn::tensor(comm.allocate(4000), {10, 100}, at::kFloat).fill_(1);
  cohort::nn::all_reduce(comm, ones, cohort::collective::Op::sum);
  std::printf("rank %d of %d: the sum of ones is %g\n", comm.rank().value, comm.size(), ones[0][0].item<float>());
  return ones.eq(comm.size()).all().item<bool>() ? 0 : 1;
}
