// One rank of an all-reduce between hosts, for bench/hosts.py, which starts it in network namespaces: without a launcher, so that what is
// measured is the transport and the collective. Rank 0 prints one JSON line.
//   hosts_bench <rank> <secret file> <address,address,..> <bytes> <rounds> <algorithm or auto> <congestion> <allocate or any> <streams>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cohort/base/text.h"
#include "cohort/collective/communicator.h"
#include "cohort/net/connect.h"

namespace cohort {
namespace {

using collective::Op;
using collective::piece;

struct Wanted {
  net::ConnectPlan plan;
  std::size_t count;
  int rounds;
  std::string algorithm;
  bool allocate;
};

Wanted wanted(char** arg) {
  Wanted w{.plan = {},
           .count = std::stoull(arg[4]) / sizeof(float),
           .rounds = std::atoi(arg[5]),
           .algorithm = arg[6],
           .allocate = std::string(arg[8]) == "allocate"};
  w.plan.job = "bench";
  w.plan.me = Rank{std::atoi(arg[1])};
  w.plan.secret = net::Secret::from_file(arg[2]);
  for (const auto address : split(arg[3], ',')) w.plan.addresses.push_back(net::Address::parse(std::string(address)));
  w.plan.congestion = arg[7];
  w.plan.streams = std::atoi(arg[9]);
  if (w.algorithm == "auto") w.algorithm.clear();
  return w;
}

// Seconds of the slowest rank.
double once(collective::Communicator& comm, collective::Piece data, const std::string& algorithm) {
  comm.barrier();
  const auto start = Clock::now();
  comm.all_reduce(data, Op::sum, {.algorithm = algorithm});
  std::vector<double> took{Seconds(Clock::now() - start).count()};
  comm.all_reduce(piece(std::span(took)), Op::max);
  return took[0];
}

// Seconds this process had a core so far. What the kernel does in interrupts on its behalf is not in it.
double on_cores() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// The first row of the selector's explanation.
std::string chosen(collective::Communicator& comm, collective::Piece data) {
  const std::string text = comm.explain(data, Op::sum);
  const std::size_t first = text.find_first_not_of(" \n", text.find('\n'));
  return text.substr(first, text.find(' ', first) - first);
}

void run(const Wanted& w) {
  auto listener = net::listen_on(w.plan.addresses[static_cast<std::size_t>(w.plan.me.value)], w.plan.secret);
  const auto comm = collective::open(net::connect_peers(w.plan, std::move(listener), Deadline::in(30s)), {.timeout = Seconds{60}});
  const auto region = comm->allocate(w.count * sizeof(float));
  std::vector<float> elsewhere(w.allocate ? 0 : w.count);
  const auto values = w.allocate ? region.as<float>() : std::span(elsewhere);
  std::fill(values.begin(), values.end(), 1.0F);
  once(*comm, piece(values), w.algorithm);  // memory is faulted in, windows open
  for (const float value : values)
    if (value != static_cast<float>(comm->size())) throw_failure(Kind::bug, "a sum of {} ones is {}", comm->size(), value);
  std::fill(values.begin(), values.end(), 0.0F);  // repeated sums neither overflow nor turn denormal
  std::vector<double> seconds;
  const double before = on_cores();
  const auto start = Clock::now();
  for (int i = 0; i < w.rounds; ++i) seconds.push_back(once(*comm, piece(values), w.algorithm));
  const double share = (on_cores() - before) / Seconds(Clock::now() - start).count();
  if (comm->rank() != Rank{0}) return;
  fmt::print(
      "{{\"transport\": \"{}\", \"algorithm\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"core_share\": {:.3f}, \"seconds\": [{:.6f}]}}\n",
      comm->transport(), w.algorithm.empty() ? chosen(*comm, piece(values)) : w.algorithm, comm->size(), w.count * sizeof(float), share,
      fmt::join(seconds, ", "));
  std::fflush(stdout);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  if (argc != 10) {
    fmt::print(stderr, "hosts_bench: started by bench/hosts.py, which see\n");
    return 2;
  }
  try {
    cohort::run(cohort::wanted(argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "hosts_bench, rank {}: {}\n", argv[1], e.what());
    return 1;
  }
}
