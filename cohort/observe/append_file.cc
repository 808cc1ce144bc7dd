#include "cohort/observe/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"

namespace cohort::observe {

AppendFile::AppendFile(const FileAt& file, int flags) : path_(file.path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  fd_.reset(::openat(file.fd(), file.name.c_str(), kFlags | flags, 0666));
  if (!fd_ && errno == ELOOP) throw_failure(Kind::corrupt, "{} is a symbolic link, which is not followed here; remove it", path_);
  if (!fd_) throw_system(fmt::format("create {}", path_));
  struct stat st {};
  if (fstat(fd_.get(), &st) != 0) throw_system(fmt::format("stat {}", path_));
  if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
    throw_failure(Kind::corrupt, "{} is a FIFO or the like, which would stop the run when nobody reads it; remove it", path_);
}

AppendFile AppendFile::fresh(const FileAt& file) { return {file, O_EXCL}; }

AppendFile AppendFile::resume(std::string path, char end_of_record) {
  AppendFile file{std::move(path), 0};
  file.cut_after_last(end_of_record);
  return file;
}

void AppendFile::cut_after_last(char end_of_record) {
  struct stat st {};
  if (fstat(fd_.get(), &st) != 0) throw_system(fmt::format("stat {}", path_));
  if (!S_ISREG(st.st_mode)) return;  // a device has no past
  off_t keep = st.st_size;
  char block[4096];
  while (keep > 0) {
    const off_t from = keep > static_cast<off_t>(sizeof block) ? keep - static_cast<off_t>(sizeof block) : 0;
    const auto n = ::pread(fd_.get(), block, static_cast<std::size_t>(keep - from), from);
    if (n < 0 && errno == EINTR) continue;
    if (n != keep - from) throw_system(fmt::format("read {}", path_));
    const auto* last = static_cast<const char*>(memrchr(block, end_of_record, static_cast<std::size_t>(n)));
    if (last != nullptr) {
      keep = from + (last - block) + 1;
      break;
    }
    keep = from;
  }
  if (keep == st.st_size) return;
  log_warning("{}: its last record is cut short ({} bytes), as a killed job leaves it; removed", path_, st.st_size - keep);
  if (ftruncate(fd_.get(), keep) != 0) throw_system(fmt::format("truncate {}", path_));
}

bool AppendFile::append(std::string_view record) noexcept {
  if (torn_) return lose(EIO), false;
  std::size_t done = 0;
  while (done < record.size()) {
    const auto n = ::write(fd_.get(), record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    const int problem = errno;
    struct stat st {};
    if (done > 0) torn_ = fstat(fd_.get(), &st) != 0 || ftruncate(fd_.get(), st.st_size - static_cast<off_t>(done)) != 0;
    lose(problem);
    return false;
  }
  warned_ = false;
  return true;
}

void AppendFile::lose(int error_number) noexcept {
  ++lost_;
  if (std::exchange(warned_, true)) return;
  try {
    log_warning("cannot write {}: {}; training goes on without these records{}", path_, std::strerror(error_number),
                torn_ ? ", and nothing more is written there" : ", and tries again with the next");
  } catch (...) {  // out of memory: the run matters more than its log
  }
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_system(fmt::format("create the folder {}", path), error.value());
}

}  // namespace cohort::observe
