#include "cohort/checkpoint/contents.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>

#include "cohort/base/text.h"
#include "cohort/checkpoint/sha256.h"

namespace cohort::checkpoint {
namespace {

constexpr std::size_t kStretch = 1_MiB;  // stays in L2 between read and hash

std::string described(const ManifestPiece& p) { return fmt::format("piece '{}' at offset {}", printable(p.name()), p.offset); }

Fd open_piece(const std::string& path, const ManifestPiece& p) {
  Fd fd{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) throw_system(fmt::format("open {} for {} with sha256 {}", path, described(p), p.sha256));
  return fd;
}

// Bytes [from, from + into.size()) of the piece.
void read_from(int fd, const std::string& path, const ManifestPiece& p, std::uint64_t from, Bytes into) {
  while (!into.empty()) {
    const auto n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(p.offset + from));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system(fmt::format("read {}, {}", path, described(p)));
    if (n == 0)
      throw_failure(Kind::corrupt, "{}: {} has {} bytes, the file ends {} before its end: truncated; its sha256 should be {}", path,
                    described(p), p.bytes(), p.bytes() - from, p.sha256);
    into = into.subspan(static_cast<std::size_t>(n));
    from += static_cast<std::uint64_t>(n);
  }
}

void compare(const std::string& path, const ManifestPiece& p, const std::string& is) {
  if (!p.sha256.empty() && is != p.sha256)
    throw_failure(Kind::corrupt, "{}: {} has sha256 {}, the manifest says {}: changed, or the file of another rank or checkpoint", path,
                  described(p), is, p.sha256);
}

// The elements of the piece that some box wants, whose elements from `first` on are `into`. A single run is read in place; several are
// copied from the stretch of the file that has them all.
void read_runs(const std::string& path, const ManifestPiece& p, std::span<const CommonRun> runs, std::uint64_t first, Bytes into) {
  const std::uint64_t bits = dtype_bits(p.dtype), from = runs.front().in_a, end = runs.back().in_a + runs.back().count;
  const bool compared = from == p.of.first && end == p.end() && !p.sha256.empty();
  const Fd fd = open_piece(path, p);
  if (runs.size() == 1) {
    const Bytes target = into.subspan((runs[0].in_b - first) * bits / 8, runs[0].count * bits / 8);
    read_from(fd.get(), path, p, (from - p.of.first) * bits / 8, target);
    if (compared) compare(path, p, sha256_hex(target));
    return;
  }
  const std::uint64_t most = kStretch * 8 / bits;
  std::vector<std::byte> stretch(std::min(most, end - from) * bits / 8);
  Sha256 hash;
  auto run = runs.begin();
  for (std::uint64_t at = from; at < end; at += most) {
    const ElementRange here{at, std::min(most, end - at)};
    const Bytes bytes = Bytes(stretch).first(here.count * bits / 8);
    read_from(fd.get(), path, p, (at - p.of.first) * bits / 8, bytes);
    if (compared) hash.add(bytes);
    while (run != runs.end()) {
      const auto part = here.overlap({run->in_a, run->count});
      if (part.count > 0)
        std::memcpy(into.data() + (run->in_b + (part.first - run->in_a) - first) * bits / 8, bytes.data() + (part.first - at) * bits / 8,
                    part.count * bits / 8);
      if (run->in_a + run->count > here.last()) break;
      ++run;
    }
  }
  if (compared) compare(path, p, hash.hex());
}

// Of a layout without pieces: what the headers say.
std::vector<ManifestPiece> whole_tensors(const Checkpoint& c) {
  std::vector<ManifestPiece> pieces;
  for (const ManifestFile& listed : c.manifest.files) {
    const SafetensorsFile file(c.file(listed.name));
    for (const TensorEntry& t : file.tensors())
      pieces.push_back({listed.name, file.data_start() + t.begin, t.dtype, {t.name, t.shape, 0}, elements_of(t.shape), {}});
  }
  return pieces;
}

}  // namespace

Contents::Contents(Checkpoint checkpoint)
    : checkpoint_(std::move(checkpoint)),
      tensors_(assemble(checkpoint_.manifest.pieces.empty() ? whole_tensors(checkpoint_) : checkpoint_.manifest.pieces, checkpoint_.path)) {
}

std::vector<std::string> Contents::groups() const {
  std::set<std::string> names;
  for (const ManifestFile& file : checkpoint_.manifest.files) names.insert(group_of(file.name));
  return {names.begin(), names.end()};
}

Metadata Contents::metadata(std::string_view group) const {
  for (const ManifestFile& file : checkpoint_.manifest.files)
    if (group_of(file.name) == group) return SafetensorsFile(checkpoint_.file(file.name)).metadata();
  return {};
}

const StoredTensor* Contents::find(std::string_view group, std::string_view name) const {
  const auto key = std::tuple(group, name);
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), key, [](const StoredTensor& t, const auto& k) {
    return std::tuple(std::string_view(t.group), std::string_view(t.name)) < k;
  });
  return found != tensors_.end() && std::tuple(std::string_view(found->group), std::string_view(found->name)) == key ? &*found : nullptr;
}

const StoredTensor& Contents::at(std::string_view group, std::string_view name) const {
  if (const auto* tensor = find(group, name)) return *tensor;
  std::vector<std::string_view> known;
  for (const StoredTensor& t : tensors_)
    if (t.group == group) known.push_back(t.name);
  const auto near = nearest(name, known);
  throw_failure(Kind::usage, "{}: no tensor '{}' among the {} of its {}{}", checkpoint_.path, printable(name), known.size(), group,
                near.empty() ? "" : fmt::format("; did you mean '{}'?", printable(near)));
}

void Contents::read(const StoredTensor& tensor, std::uint64_t first, std::uint64_t count, Bytes into) const {
  read(tensor, whole_box(tensor.shape), first, count, into);
}

void Contents::read(const StoredTensor& tensor, const Box& box, std::uint64_t first, std::uint64_t count, Bytes into) const {
  const auto bits = dtype_bits(tensor.dtype);
  if (!is_inside(box, tensor.shape))
    throw_failure(Kind::usage, "{}: '{}' is of [{}] and has no box [{}]", checkpoint_.path, printable(tensor.name),
                  fmt::join(tensor.shape, ", "), to_text(box));
  const auto elements = static_cast<std::uint64_t>(cohort::elements_of(box));
  if (first > elements || count > elements - first || into.size() != count * bits / 8)
    throw_failure(Kind::usage, "{}: {} bytes of memory for elements {} to {} of '{}', which has {} of {} bits", checkpoint_.path,
                  into.size(), first, first + count, printable(tensor.name), elements, bits);
  for (const ManifestPiece& p : tensor.pieces) {
    const auto runs = common_runs(p.of.region(), {p.of.first, p.count}, box, {first, count});
    if (!runs.empty()) read_runs(fmt::format("{}/{}", checkpoint_.path, p.file), p, runs, first, into);
  }
}

void read_piece(const std::string& folder, const ManifestPiece& piece, const ByteSink& take) {
  const auto path = fmt::format("{}/{}", folder, piece.file);
  const Fd fd = open_piece(path, piece);
  ::posix_fadvise(fd.get(), static_cast<off_t>(piece.offset), static_cast<off_t>(piece.bytes()), POSIX_FADV_SEQUENTIAL);
  std::vector<std::byte> stretch(std::min<std::uint64_t>(kStretch, piece.bytes()));
  Sha256 hash;
  for (std::uint64_t at = 0; at < piece.bytes();) {
    const Bytes now = Bytes(stretch).first(std::min<std::uint64_t>(stretch.size(), piece.bytes() - at));
    read_from(fd.get(), path, piece, at, now);
    hash.add(now);
    take(now);
    at += now.size();
  }
  compare(path, piece, hash.hex());
}

}  // namespace cohort::checkpoint
