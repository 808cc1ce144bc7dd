#include "cohort/plan/forecast/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <sstream>

#include "cohort/base/deadline.h"
#include "cohort/nn/allocation_meter.h"
#include "cohort/plan/forecast/operands.h"

namespace cohort::plan::forecast {
namespace {

constexpr std::size_t kFewest = 3, kMost = 100;    // runs of a kernel at one measurement
constexpr Seconds kEnough{0.04};                   // and no more once they took so long together
constexpr std::size_t kLargestFlush = 64'000'000;  // bytes: twice the last cache of most machines; more changes nothing

double since(Clock::time_point start) { return Seconds(Clock::now() - start).count(); }

std::string key_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  std::ostringstream key;
  key << op.schema().name() << '.' << op.schema().overload_name();
  const auto describe = [&](const at::Tensor& t) {
    if (t.defined())
      key << fmt::format("{}[{}|{}]", c10::toString(t.scalar_type()), fmt::join(t.sizes(), ","), fmt::join(t.strides(), ","));
  };
  for (const c10::IValue& value : arguments) {
    key << ';';
    if (value.isTensor()) {
      describe(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) describe(t);
    } else if (!value.isGenerator()) {
      key << value;
    }
  }
  return key.str();
}

// By torch's meta kernel. False: it has none, or one that only says so when it is called.
bool shapes_alone(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, torch::jit::Stack& results) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  try {
    results = on_meta(arguments);
    for (std::size_t i = 0; i < results.size(); ++i)  // factory functions take the device as an argument
      if (op.schema().arguments()[i].name() == "device") results[i] = c10::Device(c10::kMeta);
    op.callBoxed(&results);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

double time_once(const c10::OperatorHandle& op, const torch::jit::Stack& operands) {
  torch::jit::Stack stack = operands;
  const auto start = Clock::now();
  op.callBoxed(&stack);
  return since(start);
}

// By as many threads as wrote them in a step: what one core has written last is slow for another to read, the more so when they are far
// apart.
void write_again(const torch::jit::Stack& operands) {
  for (const c10::IValue& value : operands)
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point() &&
        value.toTensor().is_non_overlapping_and_dense())
      value.toTensor().mul_(1);
}

// elsewhere: gone over before every run, as the rest of a step would. What a quarter of the runs stay below: a step is a sum of
// many kernels, which are not all at their fastest in the same step.
double usual_of(const c10::OperatorHandle& op, const torch::jit::Stack& operands, std::vector<float>& elsewhere) {
  std::vector<double> runs;
  double spent = 0;
  while (runs.size() < kFewest || (runs.size() < kMost && spent < kEnough.count())) {
    const auto start = Clock::now();
    write_again(operands);
    for (float& x : elsewhere) x += 1;
    runs.push_back(time_once(op, operands));
    spent += since(start);
  }
  const auto quarter = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 4);
  std::nth_element(runs.begin(), quarter, runs.end());
  return *quarter;
}

}  // namespace

KernelTimings::KernelTimings(std::optional<Device> device) : device_(device), per_node_(device ? 0 : measure_node()) {}

const Call& KernelTimings::call(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  auto& known = clocked_ ? calls_ : shapes_;
  const std::string key = key_of(op, arguments);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, measure(op, arguments)).first;
  if (clocked_) {
    total_ += found->second.seconds;
    total_flops_ += found->second.flops;
  }
  return found->second;
}

Call KernelTimings::measure(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) const {
  Call call;
  const bool timed = clocked_ && !device_;
  if (timed || !shapes_alone(op, arguments, call.results)) {
    const torch::jit::Stack operands = materialize(op.schema().name(), arguments, timed ? Contents::usual : Contents::any);
    torch::jit::Stack results = operands;
    {
      const nn::AllocationMeter meter;
      op.callBoxed(&results);
      call.scratch = meter.peak() - meter.now();
    }
    if (timed) call.seconds = time_once(op, operands);
    call.results = on_meta(results);
    call.arguments = strip_memory(arguments);
    call.op = op;
  }
  call.flops = flops_of(op.schema().name(), arguments, call.results);
  call.bytes = bytes_of(arguments) + bytes_of(call.results);
  if (device_) call.seconds = std::max(call.flops / device_->flops, call.bytes / device_->bytes);
  return call;
}

void KernelTimings::remeasure_cold(std::size_t working_set) {
  if (device_) return;
  std::vector<float> elsewhere(std::min(working_set, kLargestFlush) / sizeof(float));
  for (auto& [key, call] : calls_) {
    if (!call.op) continue;
    const double seconds = usual_of(*call.op, materialize(call.op->schema().name(), call.arguments, Contents::usual), elsewhere);
    call.seconds = call.cold ? std::min(call.seconds, seconds) : seconds;
    call.cold = true;
  }
}

// A chain of the smallest kernels there are, with and without autograd around them.
double KernelTimings::measure_node() {
  constexpr int kLinks = 200, kRuns = 7;
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const at::Tensor start = torch::ones({1}, torch::requires_grad());
    const auto with = Clock::now();
    at::Tensor x = start;
    for (int i = 0; i < kLinks; ++i) x = torch::relu(x);
    x.backward();
    const double recorded = since(with);
    const at::NoGradGuard no_grad;
    const auto without = Clock::now();
    x = start.detach();
    for (int i = 0; i < kLinks; ++i) x = at::threshold_backward(torch::relu(x), x, 0);
    best = std::min(best, (recorded - since(without)) / (2 * kLinks));
  }
  return std::max(0.0, best);
}

}  // namespace cohort::plan::forecast
