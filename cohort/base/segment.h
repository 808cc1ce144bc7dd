// Shared memory without names: a memfd that peers on the same host open through /proc/<pid>/fd/<n>.
// Nothing is left behind however a process dies. A random stamp in the first page, announced over an authenticated
// channel, proves that the opened memory is the announced one: ranks are on one host exactly when that works.
// Owner: whoever holds the Segment. Threads: any after construction. Failure: Kind::system with the cause.
#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/fd.h"

namespace cohort {

// What a peer needs to open a Segment. Plain bytes: it travels in messages.
struct SegmentName {
  std::int64_t pid = 0;
  std::int32_t fd = -1;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;               // usable bytes, without the stamp page
  std::array<std::uint64_t, 2> stamp{};  // random, compared on open
  std::uint64_t inode = 0;
};

class Segment {
 public:
  Segment() = default;
  // A fresh zeroed segment of this process. populate: take every page now instead of at the first touch.
  static Segment create(std::size_t bytes, const std::string& label, bool populate);
  // A peer's segment; nullopt with `why` filled when it cannot be mapped or is not the announced memory (another host, another user, gone).
  static std::optional<Segment> open(const SegmentName& name, bool populate, std::string* why);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return base_ + kPageBytes; }
  std::size_t size() const { return name_.bytes; }
  const SegmentName& name() const { return name_; }
  explicit operator bool() const { return base_ != nullptr; }
  void populate() const;
  // Set by the owner when it releases the memory, so that peers can unmap theirs too: memory is freed when the last mapping ends.
  std::atomic<std::uint32_t>& retired() const { return *reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + kCacheLine); }

 private:
  std::byte* base_ = nullptr;  // the stamp page, then the usable bytes
  Fd fd_;                      // open in the creator only: peers need no descriptor once mapped
  SegmentName name_;
};

}  // namespace cohort
