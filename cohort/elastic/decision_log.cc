#include "cohort/elastic/decision_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cohort/base/file.h"
#include "cohort/net/frame/frame.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::elastic {
namespace {

constexpr std::string_view kMagic = "cohortlg";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = kMagic.size() + 4;
constexpr std::size_t kFrameHeaderBytes = 16;
constexpr std::size_t kMostLogBytes = 256_MiB;  // some thousand changes of the largest rosters
constexpr std::size_t kMostFrameBytes = 2 * kMostEntryBytes;

struct FrameAt {
  ConstBytes body;
  std::size_t end = 0;
};

// A whole frame at this offset, with a number from `number` on; later: any of them will do.
std::optional<FrameAt> frame_at(ConstBytes bytes, std::size_t at, std::uint32_t number, bool later) {
  if (bytes.size() - at < kFrameHeaderBytes) return std::nullopt;
  const std::byte* header = bytes.data() + at;
  const auto length = net::load_le<std::uint32_t>(header);
  const auto its_number = net::load_le<std::uint32_t>(header + 4);
  if (net::load_le<std::uint32_t>(header + 8) != net::crc32c(bytes.subspan(at, 8))) return std::nullopt;
  if (later ? its_number < number : its_number != number) return std::nullopt;
  if (length > kMostFrameBytes || length > bytes.size() - at - kFrameHeaderBytes) return std::nullopt;
  const ConstBytes body = bytes.subspan(at + kFrameHeaderBytes, length);
  if (net::load_le<std::uint32_t>(header + 12) != net::crc32c(body)) return std::nullopt;
  return FrameAt{body, at + kFrameHeaderBytes + length};
}

bool any_frame_after(ConstBytes bytes, std::size_t at, std::uint32_t number) {
  for (std::size_t i = at + 1; i + kFrameHeaderBytes <= bytes.size(); ++i)
    if (frame_at(bytes, i, number, true)) return true;
  return false;
}

void decode_body(ConstBytes body, std::vector<Entry>& entries) {
  while (!body.empty()) {
    net::ByteReader r(body, "a decision log");
    const auto length = r.number<std::uint32_t>();
    if (length > r.left()) throw_failure(Kind::corrupt, "a decision log holds an entry that ends {} bytes early", length - r.left());
    entries.push_back(decode_entry(body.subspan(4, length)));
    body = body.subspan(4 + length);
  }
}

// A file whose header was never written completely holds no decision.
bool lacks_header(ConstBytes bytes) {
  const auto header = log_header();
  return bytes.size() < header.size() && std::equal(bytes.begin(), bytes.end(), header.begin());
}

std::string read_all(int fd, const std::string& path) {
  struct stat st {};
  if (fstat(fd, &st) != 0) throw_system(fmt::format("stat {}", path));
  if (!S_ISREG(st.st_mode)) throw_failure(Kind::usage, "{} is no plain file; a decision log must be one", path);
  if (static_cast<std::size_t>(st.st_size) > kMostLogBytes)
    throw_failure(Kind::usage, "{} has {} bytes; a decision log has at most {}", path, st.st_size, kMostLogBytes);
  std::string content(static_cast<std::size_t>(st.st_size), '\0');
  std::size_t have = 0;
  while (have < content.size()) {
    const auto n = pread(fd, content.data() + have, content.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {}", path));
    if (n == 0) throw_failure(Kind::system, "{} shrank while it was read", path);
    have += static_cast<std::size_t>(n);
  }
  return content;
}

void make_name_durable(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? std::string(".") : parent.string();
  const Fd fd{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!fd) throw_system(fmt::format("open {} to make {} durable", folder, path));
  if (fsync(fd.get()) != 0 && errno != EINVAL) throw_system(fmt::format("fsync {}", folder));  // EINVAL: a file system without it
}

}  // namespace

std::vector<std::byte> log_header() {
  net::ByteWriter w;
  w.letters(kMagic);
  w.number(kVersion);
  return w.take();
}

std::vector<std::byte> encode_frame(std::span<const Entry> entries, std::uint32_t number) {
  std::vector<std::byte> bytes(kFrameHeaderBytes);
  for (const Entry& entry : entries) {
    const auto one = encode(entry);
    const std::size_t at = bytes.size();
    bytes.resize(at + 4);
    net::store_le(&bytes[at], static_cast<std::uint32_t>(one.size()));
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  const ConstBytes body = ConstBytes(bytes).subspan(kFrameHeaderBytes);
  if (body.size() > kMostFrameBytes)
    throw_failure(Kind::usage, "decisions of {} bytes at once; a decision log takes at most {}", body.size(), kMostFrameBytes);
  net::store_le(&bytes[0], static_cast<std::uint32_t>(body.size()));
  net::store_le(&bytes[4], number);
  net::store_le(&bytes[8], net::crc32c(ConstBytes(bytes).first(8)));
  net::store_le(&bytes[12], net::crc32c(body));
  return bytes;
}

LogContent decode_log(ConstBytes bytes, const std::string& where) {
  if (lacks_header(bytes)) return {};
  const auto header = log_header();
  if (bytes.size() < header.size() || !std::equal(header.begin(), header.end(), bytes.begin()))
    throw_failure(Kind::corrupt, "{} is no decision log of version {}; name another file, or remove it to start the job afresh", where,
                  kVersion);
  LogContent content{.whole = kHeaderBytes};
  while (content.whole < bytes.size()) {
    const auto frame = frame_at(bytes, content.whole, content.frames, false);
    if (!frame) break;
    decode_body(frame->body, content.entries);
    content.whole = frame->end;
    ++content.frames;
  }
  if (content.whole < bytes.size() && any_frame_after(bytes, content.whole, content.frames))
    throw_failure(Kind::corrupt,
                  "{} is damaged at byte {}, with decisions behind it that were sent to workers: restore the file, or stop the "
                  "workers and start the job from its checkpoint",
                  where, content.whole);
  return content;
}

DecisionLog::DecisionLog(std::string path) : path_(std::move(path)) {
  fd_ = Fd{::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (open()) make_name_durable(path_);
}

DecisionLog::DecisionLog(int file) : path_(fmt::format("/proc/self/fd/{}", file)) {
  fd_ = Fd{::open(path_.c_str(), O_RDWR | O_CLOEXEC)};
  open();
}

bool DecisionLog::open() {
  if (!fd_) throw_system(fmt::format("open {}", path_));
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) throw_failure(Kind::usage, "{} is held by another coordinator of this job; only one may decide", path_);
    throw_system(fmt::format("lock {}", path_));
  }
  const std::string raw = read_all(fd_.get(), path_);
  LogContent content = decode_log(std::as_bytes(std::span(raw)), path_);
  found_ = std::move(content.entries);
  frames_ = content.frames;
  end_ = content.whole;
  cut_off_ = raw.size() - end_;
  if (cut_off_ > 0 && ftruncate(fd_.get(), static_cast<off_t>(end_)) != 0) throw_system(fmt::format("cut {} to {} bytes", path_, end_));
  if (end_ > 0) return false;
  write_durably(log_header());
  return true;
}

void DecisionLog::append(std::span<const Entry> entries) {
  if (failed_) throw Failure{*failed_};
  if (entries.empty()) return;
  const auto frame = encode_frame(entries, frames_);
  if (end_ + frame.size() > kMostLogBytes)
    throw_failure(Kind::usage, "{} has reached its {} bytes; start the job from its checkpoint", path_, kMostLogBytes);
  try {
    write_durably(frame);
  } catch (const Failure& failure) {
    failed_ = failure.error();
    throw;
  }
  ++frames_;
}

void DecisionLog::write_durably(ConstBytes bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto n = pwrite(fd_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(end_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("write {}", path_));
    done += static_cast<std::size_t>(n);
  }
  if (fdatasync(fd_.get()) != 0) throw_system(fmt::format("fsync {}", path_));
  end_ += bytes.size();
}

}  // namespace cohort::elastic
