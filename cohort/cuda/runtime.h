// Memory, copies and streams of NVIDIA GPUs, without torch: what modules below the training loop know of a GPU. Every build has these
// functions; one that was made without nvcc has no kernels, and says so when a GPU is asked for.
//   const cuda::OnStream on(stream);                              // this thread's work goes there until `on` ends
//   auto memory = cuda::allocate(bytes, {DeviceKind::cuda, 0});   // zeroed
//   cuda::copy(memory.get(), host, bytes, device);                // enqueued: nothing is waited for
//   cuda::synchronize(device);                                    // until the stream of this thread is empty
// Work of all threads goes to the legacy default stream, which is torch's default one too, unless an OnStream names another: so kernels of
// torch and of ours follow each other in the order in which they were enqueued.
// Owner: memory by its shared_ptr. Threads: any; the stream is the calling thread's own. Failure: Kind::usage where there is no GPU or no
// room on it, Kind::system with CUDA's words.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/base/piece.h"

namespace cohort::cuda {

using Stream = void*;  // cudaStream_t; nullptr: the legacy default stream

bool built();                   // with kernels
int devices();                  // GPUs that this process sees; 0 without a driver, or without kernels
bool available();               // both
std::string why_unavailable();  // what to do about it; empty where it is available
[[noreturn]] void throw_unavailable(std::string_view what);

struct Info {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::size_t bytes = 0;
  std::string uuid;  // 16 bytes, the GPU's own
};
Info info(int device);

Stream current_stream() noexcept;  // of this thread
class OnStream {
 public:
  explicit OnStream(Stream stream) noexcept;
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  const Stream before_;
};

std::shared_ptr<void> allocate(std::size_t bytes, Device device);  // on a 256-byte boundary, zeroed
std::shared_ptr<void> allocate_pinned(std::size_t bytes);          // of the host, zeroed, for copies that are enqueued
// Memory of the host that was allocated elsewhere becomes pinned until the pointer goes, which keeps `memory`; where the kernel refuses it
// stays as it is, and copies are slower.
std::shared_ptr<void> pin(std::shared_ptr<void> memory, void* data, std::size_t bytes);

void zero(void* data, std::size_t bytes, Device device);
void copy(void* to, const void* from, std::size_t bytes, Device device);  // either may be the host's; device: the GPU's
void copy(const Piece& to, const Piece& from);                            // as many elements; either may be the host's
void synchronize(Device device);
void synchronize(Device device, Stream stream);

void use(Device device);                  // by the calling thread; index -1: what it uses already
void check(int error, const char* what);  // a cudaError_t
}  // namespace cohort::cuda
