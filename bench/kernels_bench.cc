// How fast the kernels are, alone and with all cores at once, beside the memory limit they are held to.
//   kernels_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_filter='(limit|in_place).*100'
// limit: an in-place update of the same bytes by the same number of threads, the best that memory allows. in_place: every source is read
// once and written once (an all-reduce over shared buffers). one_target: reduce-scatter. Bytes are those that must move.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/collective/kernels/kernels.h"

namespace {

using namespace cohort;
using namespace cohort::collective;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSkew =
    4096 + 1024 + 64;  // as in regions: addresses that end alike fight for cache sets and banks, and stores for loads

// Shared pages, as the communicator's regions have them. One mapping serves all benchmarks: taking pages is not what is measured.
char* memory(std::size_t bytes) {
  static const std::size_t most = std::size_t{2304} * kMiB;
  static char* const base = [] {
    const Fd fd(memfd_create("kernels_bench", MFD_CLOEXEC));
    if (!fd || ftruncate(fd.get(), static_cast<off_t>(most)) != 0) throw_system("kernels_bench: memfd of 2304 MiB");
    void* const mapped = mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) throw_system("kernels_bench: mmap of 2304 MiB");
    return static_cast<char*>(mapped);
  }();
  static std::mutex mutex;  // the threads of one benchmark arrive together
  static std::size_t touched = 0;
  const std::lock_guard lock(mutex);
  if (bytes > most) throw_failure(Kind::usage, "kernels_bench: {} bytes asked of {}", bytes, most);
  if (bytes > touched) std::memset(base + touched, 0, bytes - touched);
  touched = std::max(touched, bytes);
  return base;
}

struct Buffers {
  Buffers(std::size_t n, std::size_t each) : base(memory(n * (each + kSkew))), stride(each + kSkew) {}
  char* at(std::size_t k, std::size_t byte) const { return base + k * stride + byte; }
  char* base;
  std::size_t stride;
};

// The part of [0, bytes) that this thread works on, in whole cache lines.
struct Share {
  Share(const benchmark::State& state, std::size_t bytes)
      : length(bytes / static_cast<std::size_t>(state.threads()) / 64 * 64),
        first(length * static_cast<std::size_t>(state.thread_index())) {}
  std::size_t length, first;
};

void limit(benchmark::State& state, std::size_t n, std::size_t bytes) {
  const Buffers buffers(n, bytes);
  const Share share(state, bytes * n);
  for (auto _ : state) kernels().scale(Dtype::f32, buffers.base + share.first, share.length / 4, -1.0);
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * share.length) * state.iterations());
}

void reduce(benchmark::State& state, const Kernels& set, Reduction how, std::size_t n, std::size_t bytes, std::size_t m) {
  const bool in_place = m == n;
  const Buffers buffers(in_place ? n : n + m, bytes);
  const Share share(state, bytes);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (std::size_t k = 0; k < n; ++k) sources.push_back(buffers.at(k, share.first));
  for (std::size_t j = 0; j < m; ++j) targets.push_back(buffers.at(in_place ? j : n + j, share.first));
  for (auto _ : state) set.reduce(how, sources, targets, share.length / size_of(how.dtype));
  state.SetBytesProcessed(static_cast<std::int64_t>((n + m) * share.length) * state.iterations());
}

void latency(benchmark::State& state, std::size_t n, std::size_t count) {
  const Buffers buffers(n + 1, count * 4);
  std::vector<const void*> sources;
  for (std::size_t k = 0; k < n; ++k) sources.push_back(buffers.at(k, 0));
  void* const target = buffers.at(n, 0);
  for (auto _ : state) kernels().reduce({Dtype::f32, Op::sum}, sources, {&target, 1}, count);
}

void register_large(int threads) {
  for (const std::size_t mib : {25, 100, 256})
    for (const std::size_t n : {2, 3, 4, 8}) {
      const std::size_t bytes = mib * kMiB;
      const auto row = [&](const std::string& name, auto run) {
        benchmark::RegisterBenchmark(fmt::format("{}/{}x{}MiB", name, n, mib).c_str(), run)
            ->Threads(threads)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      };
      row("limit", [=](benchmark::State& state) { limit(state, n, bytes); });
      for (const Kernels& set : runnable_kernels())
        row(fmt::format("in_place/f32/{}", set.name), [=](benchmark::State& state) { reduce(state, set, {}, n, bytes, n); });
      const double share = 1.0 / static_cast<double>(n);
      row("in_place/f32/average", [=](benchmark::State& state) {
        reduce(state, kernels(), {Dtype::f32, Op::sum, 1.0, share}, n, bytes, n);
      });
      row("in_place/f16", [=](benchmark::State& state) { reduce(state, kernels(), {Dtype::f16}, n, bytes, n); });
      row("in_place/bf16", [=](benchmark::State& state) { reduce(state, kernels(), {Dtype::bf16}, n, bytes, n); });
      if (n < 8) row("one_target/f32", [=](benchmark::State& state) { reduce(state, kernels(), {}, n, bytes, 1); });
    }
}

// Every type and operation in the second-level cache, on one core: the arithmetic, not the memory.
void register_arithmetic() {
  for (int d = 0; d < kDtypes; ++d)
    for (const Op op : {Op::sum, Op::min, Op::product})
      for (const Kernels& set : runnable_kernels()) {
        const Reduction how{static_cast<Dtype>(d), op};
        benchmark::RegisterBenchmark(fmt::format("in_cache/{}/{}/{}", name_of(how.dtype), name_of(op), set.name).c_str(),
                                     [=](benchmark::State& state) { reduce(state, set, how, 4, 64 << 10, 4); });
      }
  for (const std::size_t n : {2, 4, 9})
    for (const std::size_t count : {1, 16, 256, 2048})
      benchmark::RegisterBenchmark(fmt::format("latency/f32/{}x{}", n, count).c_str(),
                                   [=](benchmark::State& state) { latency(state, n, count); });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  register_large(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  register_arithmetic();
  benchmark::RunSpecifiedBenchmarks();
}
