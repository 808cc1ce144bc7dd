// What the launch tests start: one rank, its first argument says how it behaves.
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cohort/job/job.h"

namespace {

int rank_here() { return std::atoi(std::getenv("COHORT_RANK")); }

int sum_of_ranks(cohort::Job& job) {
  std::vector<std::int32_t> value{job.rank().value + 1};
  job.comm().all_reduce(cohort::collective::piece(std::span(value)), cohort::collective::Op::sum, {.name = "test"});
  return value[0];
}

int hello() {
  cohort::Job job = cohort::init();
  const int sum = sum_of_ranks(job);
  std::printf("rank %d of %d, local %d of %d, sum %d, place %s, transport %s, epoch %u\n", job.rank().value, job.size(), job.local_rank(),
              job.local_size(), sum, job.rank_info().source.c_str(), std::string(job.comm().transport()).c_str(), job.epoch().value);
  return sum == job.size() * (job.size() + 1) / 2 ? 0 : 1;
}

// What a process may leak without noticing.
struct ProcessResources {
  long descriptors, threads, mappings;
};

long entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

ProcessResources process_resources() {
  std::ifstream maps("/proc/self/maps");
  long shared = 0;
  for (std::string line; std::getline(maps, line);) shared += line.find("memfd:") != line.npos ? 1 : 0;
  return {entries("/proc/self/fd"), entries("/proc/self/task"), shared};
}

int cycles(int count) {
  ProcessResources first{};
  for (int i = 0; i < count; ++i) {
    cohort::Job job = cohort::init();
    if (sum_of_ranks(job) != job.size() * (job.size() + 1) / 2) return 3;
    job.comm().barrier();
    if (i == 1) first = process_resources();
    if (i != count - 1) continue;
    ProcessResources last = process_resources();
    for (int look = 0; last.threads > first.threads && look < 100; ++look) {  // one that was joined may be listed a moment longer
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      last = process_resources();
    }
    std::printf("descriptors %ld to %ld, threads %ld to %ld, shared mappings %ld to %ld, epoch %u\n", first.descriptors, last.descriptors,
                first.threads, last.threads, first.mappings, last.mappings, job.epoch().value);
    if (last.descriptors > first.descriptors || last.threads > first.threads || last.mappings > first.mappings) return 4;
  }
  return 0;
}

// A signal every millisecond interrupts system calls, and none of them restarts by itself.
void start_signals() {
  struct sigaction ignore {};
  ignore.sa_handler = [](int) {};
  sigaction(SIGALRM, &ignore, nullptr);
  const itimerval every_millisecond{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every_millisecond, nullptr);
}

[[noreturn]] void sleep_until_killed() {
  while (true) pause();
}

// What user code may do to its process; says so first, so that a test knows when.
[[noreturn]] void fail_by(const std::string& how) {
  std::printf("rank %d: now\n", rank_here());
  std::fflush(stdout);
  if (how == "segv") raise(SIGSEGV);
  if (how == "throw") throw std::runtime_error("user code threw this");
  if (how == "exit") std::exit(7);
  if (how == "leave") std::exit(0);       // as if it had been done
  const rlimit little{1 << 20, 1 << 20};  // "memory": there is no more
  setrlimit(RLIMIT_AS, &little);
  std::vector<std::string> all;
  while (true) all.emplace_back(std::size_t{1} << 26, 'x');
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string how = argc > 1 ? argv[1] : "hello";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  if (how == "hello") return hello();
  if (how == "cycles") return cycles(number);
  if (how == "signals") return start_signals(), cycles(number);
  if (how == "late" && rank_here() == number) sleep_until_killed();
  if (how == "late") return hello();
  if (how == "quit" && rank_here() == number) return 5;
  if (how == "quit") return hello();
  if (how == "lost") {  // the given rank kills itself between two operations; the others are in the second one
    cohort::Job job = cohort::init();
    sum_of_ranks(job);
    if (job.rank().value == number) raise(SIGKILL);
    sum_of_ranks(job);
    return 0;
  }
  if (how == "fails") {  // the given rank fails between two operations in the way of the third argument
    cohort::Job job = cohort::init();
    sum_of_ranks(job);
    if (job.rank().value == number) fail_by(argc > 3 ? argv[3] : "");
    while (true) sum_of_ranks(job);
  }
  std::fprintf(stderr, "rank: what is '%s'?\n", how.c_str());
  return 2;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
