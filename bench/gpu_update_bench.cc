// Updates and measuring on a GPU, in bytes a second: gpu_update_bench [elements]. A line of JSON for each, beside a copy on the device,
// which is what memory gives. bench/gpu.py shows them with torch's.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/cuda/elements.h"
#include "cohort/cuda/runtime.h"
#include "cohort/optim/gpu_measure.h"
#include "cohort/optim/optimizer.h"

namespace {

using namespace cohort;  // NOLINT: a program

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int kRounds = 9, kEach = 10;

// The median over rounds of seconds for one call.
template <class Call>
double seconds_of(const Call& call) {
  std::vector<double> taken;
  for (int round = -1; round < kRounds; ++round) {
    cuda::synchronize(kGpu);
    const auto start = Clock::now();
    for (int i = 0; i < kEach; ++i) call();
    cuda::synchronize(kGpu);
    if (round >= 0) taken.push_back(Seconds(Clock::now() - start).count() / kEach);  // the first one warms up
  }
  std::nth_element(taken.begin(), taken.begin() + kRounds / 2, taken.end());
  return taken[kRounds / 2];
}

template <class Call>
void show(const std::string& what, double bytes, const Call& call) {
  const double seconds = seconds_of(call);
  std::printf("{\"what\": \"%s\", \"ms\": %.4f, \"tb_per_s\": %.4f}\n", what.c_str(), 1e3 * seconds, bytes / seconds / 1e12);
}

int run(std::size_t count) {
  if (!cuda::available()) cuda::throw_unavailable("gpu_update_bench");
  std::vector<std::shared_ptr<void>> runs;
  for (int i = 0; i < 5; ++i) {
    runs.push_back(cuda::allocate(count * sizeof(float), kGpu));
    cuda::fill({runs.back().get(), count, Dtype::f32, kGpu}, 0.01 * (i + 1));
  }
  const double bytes = static_cast<double>(count) * sizeof(float);
  show("copy", 2 * bytes, [&] { cuda::copy(runs[0].get(), runs[1].get(), count * sizeof(float), kGpu); });
  for (const char* spec : {"sgd", "sgd(momentum=0.9)", "adamw", "lion", "adagrad"}) {
    const auto rule = optim::make(spec);
    std::vector<void*> states;
    for (std::size_t k = 0; k < rule->state_names().size(); ++k) states.push_back(runs[2 + k].get());
    const optim::Slice slice{.param = runs[0].get(), .grad = runs[1].get(), .state = states, .count = count, .device = kGpu};
    const auto moved = static_cast<double>(optim::bytes_per_element(*rule, Dtype::f32, false)) * static_cast<double>(count);
    std::int64_t step = 1;
    show(spec, moved, [&] { rule->update(slice, {.step = ++step, .lr = 1e-6}); });
  }
  optim::GpuMeasure measure(kGpu);
  show("norm and finite", bytes, [&] {
    measure.begin();
    measure.add(runs[1].get(), count, Dtype::f32);
    measure.end();
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::stoull(argv[1]) : std::size_t{1} << 28U);
  } catch (const cohort::Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
