#include "cohort/base/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cohort/base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace cohort {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 60;  // beyond every machine, and the sum below cannot wrap around

// The stamp page and the usable bytes.
std::size_t total_bytes(std::size_t bytes) { return round_up(bytes, kPageBytes) + kPageBytes; }

std::byte* map_all(int fd, std::size_t total) {
  void* at = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

Segment Segment::create(std::size_t bytes, const std::string& label, bool populate) {
  Segment s;
  if (bytes > kMostBytes) throw_system(fmt::format("shared memory '{}': {} bytes", label, bytes), ENOMEM);
  const std::size_t total = total_bytes(bytes);
  s.fd_.reset(memfd_create(label.c_str(), MFD_CLOEXEC));
  if (!s.fd_) throw_system(fmt::format("shared memory '{}': memfd_create", label));
  if (ftruncate(s.fd_.get(), static_cast<off_t>(total)) != 0)
    throw_system(fmt::format("shared memory '{}': cannot size it to {} bytes", label, total));
  s.base_ = map_all(s.fd_.get(), total);
  if (s.base_ == nullptr) throw_system(fmt::format("shared memory '{}': cannot map {} bytes", label, total));
  s.name_.pid = getpid();
  s.name_.fd = s.fd_.get();
  s.name_.bytes = bytes;
  if (getrandom(s.name_.stamp.data(), sizeof s.name_.stamp, 0) != sizeof s.name_.stamp) throw_system("getrandom");
  struct stat st {};
  if (fstat(s.fd_.get(), &st) != 0) throw_system("fstat of shared memory");
  s.name_.inode = st.st_ino;
  std::memcpy(s.base_, s.name_.stamp.data(), sizeof s.name_.stamp);
  if (populate) s.populate();
  return s;
}

std::optional<Segment> Segment::open(const SegmentName& name, bool populate, std::string* why) {
  const auto path = fmt::format("/proc/{}/fd/{}", name.pid, name.fd);
  const auto refuse = [&](std::string_view what) {
    if (why != nullptr) *why = fmt::format("{}: {}", path, what);
    return std::nullopt;
  };
  const Fd fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (!fd) return refuse(std::strerror(errno));
  if (name.bytes > kMostBytes) return refuse("not the announced memory");
  const std::size_t total = total_bytes(name.bytes);
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(st.st_mode) || st.st_ino != name.inode || static_cast<std::size_t>(st.st_size) != total)
    return refuse("not the announced memory");
  Segment s;
  s.name_ = name;
  s.base_ = map_all(fd.get(), total);
  if (s.base_ == nullptr) return refuse(std::strerror(errno));
  if (std::memcmp(s.base_, name.stamp.data(), sizeof name.stamp) != 0) return refuse("stamp differs");
  if (populate) s.populate();
  return s;
}

Segment::Segment(Segment&& other) noexcept : base_(std::exchange(other.base_, nullptr)), fd_(std::move(other.fd_)), name_(other.name_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this == &other) return *this;
  this->~Segment();
  return *new (this) Segment(std::move(other));
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, total_bytes(name_.bytes));
}

void Segment::populate() const {
  if (size() == 0) return;
  const std::size_t bytes = round_up(size(), kPageBytes);
  if (madvise(data(), bytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno == ENOMEM || errno == EFAULT) throw_system(fmt::format("shared memory: no room for {} bytes", bytes));
  for (std::size_t at = 0; at < bytes; at += kPageBytes) {  // kernels before 5.14: touch without changing
    auto& cell = reinterpret_cast<std::atomic<unsigned char>&>(data()[at]);
    cell.fetch_or(0);
  }
}

}  // namespace cohort
