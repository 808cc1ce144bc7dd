#include "cohort/checkpoint/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cohort/base/error.h"

namespace cohort::checkpoint {
namespace {

constexpr std::size_t kPieceBytes = 1_MiB;         // stays in L2 between the copy to the kernel and the hash
constexpr std::uint64_t kWritebackBytes = 16_MiB;  // large enough for a disk to be busy, small enough to start early

}  // namespace

Output::Output(FileAt file, OutputOptions options) : file_(std::move(file)), options_(options) {
  fd_.reset(::openat(file_.fd(), file_.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, options_.mode));
  if (!fd_) throw_system(fmt::format("create {}", file_.path));
  if (options_.hash) hash_.emplace();
}

Output::~Output() {
  if (!finished_ && fd_) ::unlinkat(file_.fd(), file_.name.c_str(), 0);
}

void Output::write(ConstBytes bytes) {
  if (buffer_.size() + bytes.size() < kPieceBytes) {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  put(std::as_bytes(std::span(buffer_)));
  buffer_.clear();
  put(bytes);
}

void Output::put(ConstBytes bytes) {
  while (!bytes.empty()) {
    const auto n = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("write {} at offset {}", file_.path, written_));
    const auto taken = bytes.first(static_cast<std::size_t>(n));  // may be less than asked: the loop brings the rest
    if (hash_) hash_->add(taken);
    written_ += taken.size();
    bytes = bytes.subspan(taken.size());
    start_writeback();
  }
}

void Output::start_writeback() {
  if (!options_.sync || written_ - started_ < kWritebackBytes) return;
  // A hint: what goes wrong here is reported by the fsync.
  ::sync_file_range(fd_.get(), static_cast<off_t>(started_), static_cast<off_t>(written_ - started_), SYNC_FILE_RANGE_WRITE);
  started_ = written_;
}

Written Output::finish() {
  put(std::as_bytes(std::span(buffer_)));
  buffer_.clear();
  if (options_.sync && ::fsync(fd_.get()) != 0) throw_system(fmt::format("fsync {} ({} bytes)", file_.path, written_));
  finished_ = ::close(fd_.release()) == 0;  // some file systems say only here that the disk is full
  if (!finished_) {
    const int error = errno;
    ::unlinkat(file_.fd(), file_.name.c_str(), 0);
    throw_system(fmt::format("close {} ({} bytes)", file_.path, written_), error);
  }
  return {written_, hash_ ? hash_->hex() : std::string{}};
}

}  // namespace cohort::checkpoint
