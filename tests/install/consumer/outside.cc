// A program of somebody else: one all-reduce, at whatever size the job has (started alone: one).
#include <cohort/cohort.h>

#include <cstdio>
#include <vector>

int main() {
  const cohort::Job job = cohort::init();
  cohort::collective::Communicator& comm = job.comm();
  std::vector<float> values(1000, 1.0F);
  comm.all_reduce(cohort::collective::piece(std::span(values)), cohort::collective::Op::sum);
  std::printf("rank %d of %d: the sum of ones is %g\n", comm.rank().value, comm.size(), values.front());
  return values.back() == static_cast<float>(comm.size()) ? 0 : 1;
}
