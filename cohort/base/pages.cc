#include "cohort/base/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"

namespace cohort {
namespace {
constexpr std::size_t kHugePage = 2_MiB;
constexpr std::size_t kMost = std::size_t{1} << 47;  // all that a process can address; above, the sums below would wrap
}  // namespace

std::shared_ptr<void> huge_pages(std::size_t bytes) {
  if (bytes > kMost) throw_failure(Kind::system, "cannot get {} bytes of memory: no process can address them", bytes);
  const std::size_t whole = round_up(bytes < 1 ? 1 : bytes, kHugePage) + kHugePage;  // one more, to find a boundary in
  void* const base = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw_failure(Kind::system, "cannot get {} bytes of memory: {}", whole, std::strerror(errno));
  const auto at = reinterpret_cast<std::size_t>(base);
  auto* const data = static_cast<std::byte*>(base) + (round_up(at, kHugePage) - at);
  const std::size_t huge = bytes / kHugePage * kHugePage;  // the rest in small pages, or up to 2 MiB would be held for nothing
  madvise(data, huge, MADV_HUGEPAGE);                      // refused: small pages do as well
  madvise(data + huge, whole - kHugePage - huge, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < bytes; i += kPageBytes) data[i] = std::byte{0};
  return {data, [base, whole](void*) { munmap(base, whole); }};
}

}  // namespace cohort
