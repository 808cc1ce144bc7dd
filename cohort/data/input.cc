#include "cohort/data/input.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/data/limits.h"

namespace cohort::data {
namespace {

constexpr std::size_t kFreelyInflated = 16_MiB;  // so little that no ratio matters

std::size_t most_inflated(std::size_t file_bytes) {
  const auto ratio = static_cast<std::size_t>(input_limits().max_inflate_ratio);
  return file_bytes > (kMostInputBytes - kFreelyInflated) / ratio ? kMostInputBytes : kFreelyInflated + ratio * file_bytes;
}

struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw_failure(Kind::system, "zlib: no memory to inflate with");  // 16: gzip only
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

std::string inflate_gzip(std::string_view gzip, std::string_view where, std::size_t most) {
  Inflater inflater;
  z_stream& z = inflater.stream;
  const std::size_t allowed = most_inflated(gzip.size());
  std::string out;
  std::string block(256_KiB, '\0');
  std::size_t fed = 0;
  const auto offset = [&] { return fed - z.avail_in; };
  for (;;) {
    if (z.avail_in == 0 && fed < gzip.size()) {
      const std::size_t n = std::min<std::size_t>(gzip.size() - fed, std::numeric_limits<uInt>::max());
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data() + fed));  // zlib only reads it
      z.avail_in = static_cast<uInt>(n);
      fed += n;
    }
    z.next_out = reinterpret_cast<Bytef*>(block.data());
    z.avail_out = static_cast<uInt>(block.size());
    const int status = inflate(&z, Z_NO_FLUSH);
    const std::size_t made = block.size() - z.avail_out;
    if (made > most - out.size())
      throw_failure(Kind::usage, "{}: inflates to more than {}; is it the right file?", where, format_bytes(most));
    if (made > allowed - std::min(allowed, out.size()))
      throw_failure(Kind::corrupt,
                    "{}: {} bytes of gzip inflate to more than {}, beyond data.max_inflate_ratio={}; raise it if the file can be trusted",
                    where, gzip.size(), format_bytes(allowed), input_limits().max_inflate_ratio);
    out.append(block, 0, made);
    if (status == Z_STREAM_END) {
      if (offset() == gzip.size()) return out;
      inflateReset(&z);  // another member follows: `cat a.gz b.gz`
    } else if (status == Z_BUF_ERROR || (status == Z_OK && made == 0 && fed == gzip.size() && z.avail_in == 0)) {
      throw_failure(Kind::corrupt, "{}: the gzip data stops at byte {} before its end; the file was cut short, fetch it again", where,
                    gzip.size());
    } else if (status != Z_OK) {
      throw_failure(Kind::corrupt, "{}: bad gzip data at byte {} ({}); fetch the file again", where, offset(),
                    z.msg != nullptr ? z.msg : "no reason given");
    }
  }
}

FileState state_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return {};
  return {st.st_size, std::int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec, st.st_ino};
}

std::string read_unchanged(const std::string& path, const FileState& before, const std::function<std::string()>& read) {
  const auto compare = [&](const char* since) {
    const FileState now = state_of(path);
    if (now == before) return;
    const std::string what = now.bytes < 0               ? "it is not there any more"
                             : now.bytes != before.bytes ? fmt::format("it had {} bytes and has {}", before.bytes, now.bytes)
                                                         : fmt::format("its {} bytes were written again", now.bytes);
    throw_failure(Kind::corrupt,
                  "{} changed {}: {}; ranks may have read different samples. Let whatever writes it end, then start the run again", path,
                  since, what);
  };
  compare("since the data set was opened");
  std::string content = read();
  compare("while it was read");
  return content;
}

std::string read_input(const std::string& path, std::size_t most) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) throw_failure(Kind::usage, "there is no file {}; check the path", path);
  std::string content = read_unchanged(path, state_of(path), [&] { return read_file(path, most); });
  if (content.size() < 2 || content.compare(0, 2, "\x1f\x8b") != 0) return content;
  return inflate_gzip(content, path, most);
}

std::string find_input(const std::string& dir, std::span<const std::string_view> names, std::string_view hint) {
  std::string tried;
  for (const std::string_view name : names) {
    for (const std::string_view suffix : {"", ".gz"}) {
      std::string path = fmt::format("{}/{}{}", dir, name, suffix);
      std::error_code error;
      if (std::filesystem::is_regular_file(path, error)) return path;
      tried += (tried.empty() ? "" : ", ") + path;
    }
  }
  throw_failure(Kind::usage, "none of these files is there: {}; {}", tried, hint);
}

}  // namespace cohort::data
