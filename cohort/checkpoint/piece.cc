#include "cohort/checkpoint/piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::size_t kRankDigits = 5;
constexpr std::size_t kRankTail = std::string_view("-00000-of-00000").size();

std::string place(const ManifestPiece& p) { return fmt::format("{} at offset {}", p.file, p.offset); }

// `next` comes right after the elements that are there already.
void check_next(const StoredTensor& tensor, const ManifestPiece& next, std::string_view where) {
  const std::uint64_t at = tensor.pieces.empty() ? 0 : tensor.pieces.back().end();
  if (next.dtype != tensor.dtype || next.of.shape != tensor.shape)
    throw_failure(Kind::corrupt, "{}: {} in {} is of {} [{}], the piece in {} says {} [{}]", where, printable(next.name()), place(next),
                  dtype_name(next.dtype), fmt::join(next.of.shape, ", "), place(tensor.pieces.front()), dtype_name(tensor.dtype),
                  fmt::join(tensor.shape, ", "));
  if (next.of.first > at)
    throw_failure(Kind::corrupt, "{}: elements {} to {} of '{}' are in no piece; {} in {} is the next", where, at, next.of.first - 1,
                  printable(tensor.name), printable(next.name()), place(next));
  if (next.of.first < at || (next.count == 0 && !tensor.pieces.empty()))
    throw_failure(Kind::corrupt, "{}: {} in {} and {} in {} overlap", where, printable(tensor.pieces.back().name()),
                  place(tensor.pieces.back()), printable(next.name()), place(next));
}

void check_end(const StoredTensor& tensor, std::string_view where) {
  const ManifestPiece& last = tensor.pieces.back();
  if (last.end() != tensor.elements())
    throw_failure(Kind::corrupt, "{}: elements {} to {} of '{}' are in no piece; {} in {} is the last", where, last.end(),
                  tensor.elements() - 1, printable(tensor.name), printable(last.name()), place(last));
}

bool all_digits(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

}  // namespace

std::string piece_name(const PartOf& of, std::uint64_t count) {
  if (of.first == 0 && count == elements_of(of.shape)) return of.tensor;
  return fmt::format("{}[{}:{}]", of.tensor, of.first, of.first + count);
}

std::string ManifestPiece::name() const { return piece_name(of, count); }

std::string shard_file(std::string_view group, int rank, int ranks) {
  return fmt::format("{}-{:0{}}-of-{:0{}}{}", group, rank, kRankDigits, ranks, kRankDigits, kSuffix);
}

std::string whole_file(std::string_view group) { return fmt::format("{}{}", group, kSuffix); }

std::string group_of(std::string_view file) {
  if (file.ends_with(kSuffix)) file.remove_suffix(kSuffix.size());
  if (file.size() <= kRankTail) return std::string(file);
  const auto tail = file.substr(file.size() - kRankTail);
  const bool of_a_rank = tail[0] == '-' && all_digits(tail.substr(1, kRankDigits)) && tail.substr(1 + kRankDigits, 4) == "-of-" &&
                         all_digits(tail.substr(1 + kRankDigits + 4));
  return std::string(of_a_rank ? file.substr(0, file.size() - kRankTail) : file);
}

std::vector<StoredTensor> assemble(std::span<const ManifestPiece> pieces, std::string_view where) {
  struct Keyed {
    std::string group;
    const ManifestPiece* piece;
  };
  std::vector<Keyed> order;
  for (const ManifestPiece& p : pieces) order.push_back({group_of(p.file), &p});
  std::stable_sort(order.begin(), order.end(), [](const Keyed& a, const Keyed& b) {
    return std::tie(a.group, a.piece->of.tensor, a.piece->of.first, a.piece->count) <
           std::tie(b.group, b.piece->of.tensor, b.piece->of.first, b.piece->count);
  });
  std::vector<StoredTensor> tensors;
  for (const auto& [group, piece] : order) {
    if (tensors.empty() || tensors.back().group != group || tensors.back().name != piece->of.tensor) {
      if (!tensors.empty()) check_end(tensors.back(), where);
      tensors.push_back({group, piece->of.tensor, piece->dtype, piece->of.shape, {}});
    }
    check_next(tensors.back(), *piece, where);
    tensors.back().pieces.push_back(*piece);
  }
  if (!tensors.empty()) check_end(tensors.back(), where);
  return tensors;
}

}  // namespace cohort::checkpoint
