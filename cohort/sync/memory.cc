#include "cohort/sync/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cohort/base/bytes.h"
#include "cohort/base/fd.h"
#include "cohort/base/pages.h"
#include "cohort/cuda/runtime.h"

namespace cohort::sync {
namespace {

constexpr std::size_t kAlign = 64;     // bytes: a cache line, and what the widest vector load likes
constexpr std::size_t kSmall = 1_MiB;  // below it huge pages are mostly air, and a model may have a thousand small buckets

}  // namespace

collective::Region pages_for(std::size_t bytes, std::size_t which) {
  if (bytes < kSmall) {
    const std::shared_ptr<void> lines(::operator new (bytes, std::align_val_t{kAlign}),
                                      [](void* p) { ::operator delete (p, std::align_val_t{kAlign}); });
    std::memset(lines.get(), 0, bytes);
    return collective::Region{lines, lines.get(), bytes};
  }
  const std::size_t skew = which * (kPageBytes + 17 * kAlign);
  auto pages = huge_pages(bytes + skew);
  void* const data = static_cast<std::byte*>(pages.get()) + skew;
  return collective::Region{std::move(pages), data, bytes};
}

collective::Region memory_for(std::size_t bytes, std::size_t which, Device device) {
  if (device.kind == DeviceKind::cpu) return pages_for(bytes, which);
  auto memory = cuda::allocate(bytes, device);
  void* const data = memory.get();
  return collective::Region{std::move(memory), data, bytes};
}

collective::Region file_for(std::size_t bytes, const std::string& folder) {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kPageBytes);
  const Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file)
    throw_failure(Kind::usage, "offload: no file can be made in {}: {}; name a folder of this host's own disk", folder,
                  std::strerror(errno));
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size)); error != 0)
    throw_failure(Kind::system, "offload: no space for {} bytes in {}: {}", size, folder, std::strerror(error));
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) throw_failure(Kind::system, "offload: {} bytes of {} cannot be mapped: {}", size, folder, std::strerror(errno));
  return collective::Region{std::shared_ptr<void>(data, [size](void* p) { ::munmap(p, size); }), data, bytes};
}

void page_out(const collective::Region& region) {
  const std::size_t size = round_up(std::max<std::size_t>(region.bytes(), 1), kPageBytes);
  static_cast<void>(::madvise(region.data(), size, MADV_DONTNEED));  // of a shared mapping: the file keeps it
}

}  // namespace cohort::sync
