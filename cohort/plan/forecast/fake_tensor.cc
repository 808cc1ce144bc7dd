#include "cohort/plan/forecast/fake_tensor.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort::plan::forecast {
namespace {

constexpr auto kKey = c10::DispatchKey::Fake;

// Of the thread that profiles.
struct ModelProfiler {
  KernelTimings* kernels = nullptr;
  std::shared_ptr<LiveBytes> live_bytes = std::make_shared<LiveBytes>();
};
thread_local ModelProfiler* profiler = nullptr;  // NOLINT: a kernel that torch calls has no other way to its owner

// Stands in for memory: gone when the last tensor that shares it is.
struct Note {
  std::shared_ptr<LiveBytes> live_bytes;
  std::size_t bytes;
  static void drop(void* note) {
    auto* const gone = static_cast<Note*>(note);
    gone->live_bytes->now -= gone->bytes;
    delete gone;
  }
};

at::Tensor fake_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  const std::size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  LiveBytes& live_bytes = *profiler->live_bytes;
  live_bytes.now += bytes;
  live_bytes.peak = std::max(live_bytes.peak, live_bytes.now);
  c10::DataPtr nowhere(nullptr, new Note{profiler->live_bytes, bytes}, &Note::drop, c10::Device(c10::kCPU));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(nowhere), nullptr, false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet({c10::DispatchKey::CPU, kKey}), c10::scalarTypeToTypeMeta(type));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

c10::IValue install_mode(const c10::IValue& result) {
  const auto one = [](const at::Tensor& t) { return t.defined() ? fake_strided(t.sizes(), t.strides(), t.scalar_type()) : t; };
  if (result.isTensor()) return one(result.toTensor());
  if (!result.isTensorList()) return result;
  c10::List<at::Tensor> list;
  for (const at::Tensor& t : result.toTensorVector()) list.push_back(one(t));
  return list;
}

// Which argument is written to and returned as this result; none: the result is new.
std::optional<std::size_t> written_as(const c10::FunctionSchema& schema, std::size_t result) {
  const auto* alias = schema.returns()[result].alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (const auto* of = schema.arguments()[i].alias_info(); of != nullptr && *of == *alias) return i;
  return std::nullopt;
}

bool is_view(const c10::FunctionSchema& schema) {
  if (schema.name() == "aten::_unsafe_view") return true;  // shares its argument's memory and does not say so
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const auto& a) { return a.alias_info() != nullptr && !a.alias_info()->isWrite(); });
}

void answer(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (profiler == nullptr) throw_failure(Kind::usage, "{} reached a tensor without memory outside of a FakeTensorMode", op.schema().name());
  const c10::impl::ExcludeDispatchKeyGuard solid(kKey);
  const c10::FunctionSchema& schema = op.schema();
  if (schema.name() == "aten::_local_scalar_dense")
    throw_failure(Kind::usage, "the model reads a value (item()) while it runs: it cannot be profiled without running it");
  if (is_view(schema)) {
    profiler->kernels->passed(2);  // itself takes about as long as being recorded
    return op.callBoxed(stack);
  }
  profiler->kernels->passed(1);
  const std::size_t first = stack->size() - schema.arguments().size();
  const torch::jit::Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  const Call& call = profiler->kernels->call(op, arguments);
  stack->resize(first);
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    const auto written = written_as(schema, i);
    stack->push_back(written ? arguments[*written] : install_mode(call.results[i]));
  }
  LiveBytes& live_bytes = *profiler->live_bytes;
  live_bytes.peak = std::max(live_bytes.peak, live_bytes.now + call.scratch);
}

// For the whole process, at the first need: a static one would stand in the way of programs that never plan.
void install() {
  static torch::Library* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&answer>());
    return made;
  }();
  (void)library;
}

}  // namespace

struct FakeTensorMode::Impl {
  ModelProfiler profiler;
  ModelProfiler* before = nullptr;
  c10::impl::IncludeDispatchKeyGuard factories{kKey};  // empty(), zeros() have no tensor argument to dispatch on
};

FakeTensorMode::FakeTensorMode(KernelTimings& kernels) {
  install();
  impl_ = std::make_unique<Impl>();
  impl_->profiler.kernels = &kernels;
  impl_->before = std::exchange(profiler, &impl_->profiler);
}

FakeTensorMode::~FakeTensorMode() { profiler = impl_->before; }

LiveBytes FakeTensorMode::live_bytes() const { return *impl_->profiler.live_bytes; }
void FakeTensorMode::restart() { impl_->profiler.live_bytes = std::make_shared<LiveBytes>(); }

at::Tensor fake_tensor(at::IntArrayRef sizes, at::ScalarType type) {
  if (profiler == nullptr) throw_failure(Kind::bug, "a fake tensor outside of a FakeTensorMode");
  return fake_strided(sizes, c10::contiguous_strides(sizes), type);
}

bool is_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(kKey); }

}  // namespace cohort::plan::forecast
