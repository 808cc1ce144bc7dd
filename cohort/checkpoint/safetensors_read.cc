#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort::checkpoint {
namespace {

void read_at(int fd, Bytes into, std::uint64_t offset, std::string_view what) {
  while (!into.empty()) {
    const auto n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {} at offset {}", what, offset));
    if (n == 0)
      throw_failure(Kind::corrupt, "{}: the file ends at offset {}, {} bytes early; did it change while open?", what, offset, into.size());
    into = into.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

std::uint64_t file_bytes(int fd, const std::string& path) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) throw_system(fmt::format("stat {}", path));
  if (!S_ISREG(st.st_mode)) throw_failure(Kind::usage, "{} is no regular file", path);
  return static_cast<std::uint64_t>(st.st_size);
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a fifo is refused below instead of waited for
  if (!fd_) throw_system(fmt::format("open {}", path_));
  const auto bytes = file_bytes(fd_.get(), path_);
  std::array<std::byte, 8> first{};
  if (bytes >= first.size()) read_at(fd_.get(), first, 0, path_);
  std::string header(header_bytes_of(first, bytes, path_), '\0');
  read_at(fd_.get(), std::as_writable_bytes(std::span(header)), first.size(), path_);
  index_ = parse_header(header, bytes, path_);
  for (std::size_t i = 0; i < index_.tensors.size(); ++i) by_name_.emplace(index_.tensors[i].name, i);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &index_.tensors[found->second];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const auto* tensor = find(name)) return *tensor;
  std::vector<std::string_view> known;
  for (const auto& [key, index] : by_name_) known.push_back(key);
  const auto near = nearest(name, known);
  throw_failure(Kind::usage, "{}: no tensor '{}' among its {}{}", path_, printable(name), known.size(),
                near.empty() ? "" : fmt::format("; did you mean '{}'?", printable(near)));
}

void SafetensorsFile::read(const TensorEntry& tensor, Bytes into) const {
  if (into.size() != tensor.bytes())
    throw_failure(Kind::usage, "{}: tensor '{}' has {} bytes, the memory to fill has {}; another model?", path_, printable(tensor.name),
                  tensor.bytes(), into.size());
  read_at(fd_.get(), into, index_.data_start + tensor.begin, fmt::format("{}, tensor '{}'", path_, printable(tensor.name)));
}

std::vector<std::byte> SafetensorsFile::read(std::string_view name) const {
  const TensorEntry& tensor = at(name);
  std::vector<std::byte> bytes(tensor.bytes());
  read(tensor, bytes);
  return bytes;
}

}  // namespace cohort::checkpoint
