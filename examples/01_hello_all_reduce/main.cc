// Every rank contributes its rank + 1 to every element; afterwards all hold the same sums.
//   cohort run -n 4 01_hello_all_reduce        (also alone, or under torchrun, mpirun, srun)
#include <cohort/cohort.h>

#include <cstdio>
#include <exception>
#include <span>

int main() try {
  cohort::Job job = cohort::init();
  cohort::collective::Communicator& comm = job.comm();

  // Memory of the communicator: peers on this host reduce it in place, nothing is copied.
  constexpr std::size_t kCount = 1 << 20;
  cohort::collective::Region memory = comm.allocate(kCount * sizeof(float));
  std::span<float> values = memory.as<float>();
  for (float& v : values) v = static_cast<float>(job.rank().value + 1);

  comm.all_reduce(cohort::collective::piece(values), cohort::collective::Op::sum, {.name = "hello"});

  const float expected = static_cast<float>(job.size() * (job.size() + 1) / 2);
  for (const float v : values) {
    if (v == expected) continue;
    std::fprintf(stderr, "rank %d has %g instead of %g\n", job.rank().value, v, expected);
    return 1;
  }
  std::printf("rank %d of %d: every sum is %g (%s)\n", job.rank().value, job.size(), expected, std::string(comm.transport()).c_str());
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
