// The same on libtorch: the tensor lies in the communicator's memory. And a layer whose inner results are computed again in backward. It
// formats a message too: with Cohort's fmt, whose headers torch has another version of.
#include <ATen/ops/full.h>
#include <cohort/cohort.h>
#include <cohort/nn/recompute.h>
#include <cohort/nn/tensor.h>

#include <cstdio>

int main() try {
  const cohort::Job job = cohort::init();
  cohort::collective::Communicator& comm = job.comm();
  const at::Tensor ones = cohort::nn::tensor(comm.allocate(4000), {10, 100}, at::kFloat).fill_(1);
  cohort::nn::all_reduce(comm, ones, cohort::collective::Op::sum);
  std::printf("rank %d of %d: the sum of ones is %g\n", comm.rank().value, comm.size(), ones[0][0].item<float>());
  const at::Tensor x = at::full({2, 2}, 3.0, at::kFloat).requires_grad_();
  cohort::recompute([](const at::Tensor& in) { return in.square().sum(); }, x).backward();
  if (!x.grad().eq(6).all().item<bool>()) cohort::throw_failure(cohort::Kind::usage, "the gradient is {}", x.grad()[0][0].item<float>());
  return ones.eq(comm.size()).all().item<bool>() ? 0 : 1;
} catch (const cohort::Failure& failure) {
  std::puts(failure.what());
  return 1;
}
