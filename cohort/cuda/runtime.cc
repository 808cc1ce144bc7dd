#include "cohort/cuda/runtime.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/cuda/config.h"
#if COHORT_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace cohort::cuda {
namespace {

thread_local Stream stream_of_thread = nullptr;

}  // namespace

Stream current_stream() noexcept { return stream_of_thread; }
OnStream::OnStream(Stream stream) noexcept : before_(stream_of_thread) { stream_of_thread = stream; }
OnStream::~OnStream() { stream_of_thread = before_; }

bool available() { return devices() > 0; }

void throw_unavailable(std::string_view what) { throw_failure(Kind::usage, "{}: {}", what, why_unavailable()); }

std::string why_unavailable() {
  if (!built())
    return "this build has no CUDA kernels, as nvcc was not there when it was made: install the CUDA toolkit and build again, or take the "
           "CPU";
  return devices() > 0 ? ""
                       : "this process sees no GPU: `nvidia-smi` and `cohort doctor` say what there is, CUDA_VISIBLE_DEVICES hides some";
}

void copy(const Piece& to, const Piece& from) {
  if (to.count != from.count || to.dtype != from.dtype)
    throw_failure(Kind::bug, "{} {} elements meet {} of {}", to.count, name_of(to.dtype), from.count, name_of(from.dtype));
  copy(to.data, from.data, to.bytes(), to.device.kind == DeviceKind::cuda ? to.device : from.device);
}

void synchronize(Device device) { synchronize(device, current_stream()); }

#if COHORT_HAS_CUDA

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

cudaStream_t here() { return static_cast<cudaStream_t>(stream_of_thread); }

}  // namespace

bool built() { return true; }

int devices() {
  static const int found = [] {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    static_cast<void>(cudaGetLastError());  // no driver, no device: an answer, not a failure
    return error == cudaSuccess ? count : 0;
  }();
  return found;
}

void check(int error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw_failure(Kind::system, "cuda: {}: {} ({})", what, cudaGetErrorString(static_cast<cudaError_t>(error)),
                cudaGetErrorName(static_cast<cudaError_t>(error)));
}

void use(Device device) {
  int now = 0;
  if (device.index < 0) return;
  check(cudaGetDevice(&now), "cudaGetDevice");
  if (now != device.index) check(cudaSetDevice(device.index), "cudaSetDevice");
}

Info info(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  // The total is the device's own: to ask what is free would open a context on it.
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .bytes = properties.totalGlobalMem,
          .uuid = {properties.uuid.bytes, sizeof properties.uuid.bytes}};
}

std::shared_ptr<void> allocate(std::size_t bytes, Device device) {
  if (!available()) throw_unavailable("memory of a GPU");
  use(device);
  void* data = nullptr;
  const std::size_t wanted = bytes == 0 ? 256 : bytes;  // an empty piece has an address, too
  if (const cudaError_t error = cudaMalloc(&data, wanted); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    std::size_t left = 0, all = 0;
    static_cast<void>(cudaMemGetInfo(&left, &all));
    throw_failure(Kind::usage,
                  "cuda: no room for {:.1f} MiB on cuda:{}, where {:.0f} of {:.0f} MiB are free ({}): take a smaller batch, "
                  "sync=zero(stage=2), or offload=host; `nvidia-smi` names other programs on it",
                  static_cast<double>(bytes) / kMiB, static_cast<int>(device.index), static_cast<double>(left) / kMiB,
                  static_cast<double>(all) / kMiB, cudaGetErrorString(error));
  }
  std::shared_ptr<void> memory(data, [](void* p) { static_cast<void>(cudaFree(p)); });
  zero(data, wanted, device);
  return memory;
}

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  if (!available()) throw_unavailable("pinned memory");
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes == 0 ? 64 : bytes, cudaHostAllocPortable), "cudaHostAlloc");
  std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{});
  return {data, [](void* p) { static_cast<void>(cudaFreeHost(p)); }};
}

std::shared_ptr<void> pin(std::shared_ptr<void> memory, void* data, std::size_t bytes) {
  if (cudaHostRegister(data, bytes, cudaHostRegisterPortable) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return memory;
  }
  return {data, [memory](void* p) { static_cast<void>(cudaHostUnregister(p)); }};
}

void zero(void* data, std::size_t bytes, Device device) {
  use(device);
  if (bytes > 0) check(cudaMemsetAsync(data, 0, bytes, here()), "cudaMemsetAsync");
}

void copy(void* to, const void* from, std::size_t bytes, Device device) {
  use(device);
  if (bytes > 0 && to != from) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, here()), "cudaMemcpyAsync");
}

void synchronize(Device device, Stream stream) {
  use(device);
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

#else

bool built() { return false; }
int devices() { return 0; }
void check(int /*error*/, const char* what) { throw_unavailable(what); }
void use(Device /*device*/) { throw_unavailable("a GPU"); }
Info info(int /*device*/) { throw_unavailable("a GPU"); }
std::shared_ptr<void> allocate(std::size_t /*bytes*/, Device /*device*/) { throw_unavailable("memory of a GPU"); }
std::shared_ptr<void> allocate_pinned(std::size_t /*bytes*/) { throw_unavailable("pinned memory"); }
std::shared_ptr<void> pin(std::shared_ptr<void> memory, void* /*data*/, std::size_t /*bytes*/) { return memory; }
void zero(void* /*data*/, std::size_t /*bytes*/, Device /*device*/) { throw_unavailable("memory of a GPU"); }
void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/, Device /*device*/) { throw_unavailable("memory of a GPU"); }
void synchronize(Device /*device*/, Stream /*stream*/) { throw_unavailable("a GPU"); }

#endif

}  // namespace cohort::cuda
