#include "cohort/data/input.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::data {
namespace {

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

std::string read_input(const std::string& path, std::size_t most) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) throw_failure(Kind::usage, "there is no file {}; check the path", path);
  std::string content = read_file(path, most);
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
