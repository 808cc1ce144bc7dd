// backend_rank laws | die | sum: one rank as a process, with the backend of COHORT_BACKEND.
//   laws  holds every law of a backend and prints "rank R of N: 12 laws hold"
//   die   all ranks reduce without end, rank 1 kills itself in the middle; the others print the error they got, and how soon
//   sum   one all_reduce; prints its explain()
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/job/job.h"
#include "tests/backends/laws.h"

namespace {

using namespace cohort;  // NOLINT(google-build-using-namespace): a program of one page

void laws(const Job& job) {
  for (const auto& law : collective::backend_laws()) {
    try {
      law.hold(job.comm());
    } catch (const std::exception& broken) {
      throw_failure(Kind::bug, "{}: {}", law.name, broken.what());
    }
  }
  fmt::print("rank {} of {}: {} laws hold\n", job.rank().value, job.size(), collective::backend_laws().size());
}

void die(const Job& job) {
  std::signal(SIGTERM, SIG_IGN);  // the launcher's, when it sees that a rank died: we print our error first
  std::vector<float> values(300'000, 1.0F);
  const auto data = collective::piece(std::span(values));
  for (int i = 0; i < 20; ++i) job.comm().all_reduce(data, collective::Op::average);
  if (job.rank().value == 1) raise(SIGKILL);
  const auto start = Clock::now();
  try {
    for (const auto limit = Deadline::in(20s); !limit.passed();) job.comm().all_reduce(data, collective::Op::average);
    fmt::print("nothing happened\n");
  } catch (const Failure& failure) {
    fmt::print("after {:.2f} s: {}\n", Seconds(Clock::now() - start).count(), failure.what());
  }
}

void sum(const Job& job) {
  std::vector<float> values(1000, 1.0F);
  job.comm().all_reduce(collective::piece(std::span(values)), collective::Op::sum);
  fmt::print("sum {}; {}\n", values[999], job.comm().explain(collective::piece(std::span(values)), collective::Op::sum));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "laws" && what != "die" && what != "sum") throw_failure(Kind::usage, "usage: backend_rank laws | die | sum");
  const Job job = init();
  what == "laws" ? laws(job) : what == "die" ? die(job) : sum(job);
  std::fflush(stdout);
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
