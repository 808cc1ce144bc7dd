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

[[noreturn]] void refuse_overlap(const ManifestPiece& a, const ManifestPiece& b, std::string_view where) {
  throw_failure(Kind::corrupt, "{}: {} in {} and {} in {} overlap", where, printable(a.name()), place(a), printable(b.name()), place(b));
}

void check_same_tensor(const StoredTensor& tensor, const ManifestPiece& next, std::string_view where) {
  if (next.dtype == tensor.dtype && next.of.shape == tensor.shape) return;
  throw_failure(Kind::corrupt, "{}: {} in {} is of {} [{}], the piece in {} says {} [{}]", where, printable(next.name()), place(next),
                dtype_name(next.dtype), fmt::join(next.of.shape, ", "), place(tensor.pieces.front()), dtype_name(tensor.dtype),
                fmt::join(tensor.shape, ", "));
}

// `next` comes right after the elements of its box that are there already.
void check_next(const StoredTensor& tensor, const ManifestPiece& next, std::uint64_t at, std::string_view where) {
  if (next.of.first > at)
    throw_failure(Kind::corrupt, "{}: elements {} to {} of '{}' are in no piece; {} in {} is the next", where, at, next.of.first - 1,
                  printable(tensor.name), printable(next.name()), place(next));
  if (next.of.first < at) refuse_overlap(tensor.pieces.back(), next, where);
}

// The pieces of one box are there.
void check_end(const StoredTensor& tensor, std::string_view where) {
  const ManifestPiece& last = tensor.pieces.back();
  const auto elements = static_cast<std::uint64_t>(cohort::elements_of(last.of.region()));
  if (last.end() != elements)
    throw_failure(Kind::corrupt, "{}: elements {} to {} of '{}' are in no piece; {} in {} is the last", where, last.end(), elements - 1,
                  printable(tensor.name), printable(last.name()), place(last));
}

// Boxes that do not overlap, and have as many elements as the tensor, are all of it.
void check_boxes(const StoredTensor& tensor, std::string_view where) {
  std::vector<const ManifestPiece*> boxes;
  std::uint64_t elements = 0;
  for (const ManifestPiece& p : tensor.pieces)
    if (p.of.first == 0) boxes.push_back(&p), elements += static_cast<std::uint64_t>(cohort::elements_of(p.of.region()));
  if (boxes.size() > kMostBoxes)
    throw_failure(Kind::corrupt, "{}: '{}' is in {} boxes, {} at most", where, printable(tensor.name), boxes.size(), kMostBoxes);
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t k = i + 1; k < boxes.size(); ++k)
      if (cohort::elements_of(overlap(boxes[i]->of.region(), boxes[k]->of.region())) > 0) refuse_overlap(*boxes[i], *boxes[k], where);
  if (elements != tensor.elements())
    throw_failure(Kind::corrupt, "{}: {} of the {} elements of '{}' are in no piece; {} in {} is the last", where,
                  tensor.elements() - elements, tensor.elements(), printable(tensor.name), printable(tensor.pieces.back().name()),
                  place(tensor.pieces.back()));
}

void check_whole(const StoredTensor& tensor, std::string_view where) {
  check_end(tensor, where);
  if (std::ranges::any_of(tensor.pieces, [](const ManifestPiece& p) { return p.of.box.has_value(); })) check_boxes(tensor, where);
}

bool all_digits(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

}  // namespace

std::string piece_name(const PartOf& of, std::uint64_t count) {
  const std::string region = of.box ? fmt::format("{}[{}]", of.tensor, to_text(*of.box)) : of.tensor;
  if (of.first == 0 && count == static_cast<std::uint64_t>(cohort::elements_of(of.region()))) return region;
  return fmt::format("{}[{}:{}]", region, of.first, of.first + count);
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
    Box box;  // without dimensions: the whole tensor
    const ManifestPiece* piece;
  };
  std::vector<Keyed> order;
  for (const ManifestPiece& p : pieces) order.push_back({group_of(p.file), p.of.box.value_or(Box{}), &p});
  std::stable_sort(order.begin(), order.end(), [](const Keyed& a, const Keyed& b) {
    return std::tie(a.group, a.piece->of.tensor, a.box.first, a.box.sizes, a.piece->of.first, a.piece->count) <
           std::tie(b.group, b.piece->of.tensor, b.box.first, b.box.sizes, b.piece->of.first, b.piece->count);
  });
  std::vector<StoredTensor> tensors;
  for (const auto& [group, _, piece] : order) {
    if (tensors.empty() || tensors.back().group != group || tensors.back().name != piece->of.tensor) {
      if (!tensors.empty()) check_whole(tensors.back(), where);
      tensors.push_back({group, piece->of.tensor, piece->dtype, piece->of.shape, {}});
    }
    StoredTensor& tensor = tensors.back();
    check_same_tensor(tensor, *piece, where);
    const bool begins = tensor.pieces.empty() || tensor.pieces.back().of.box != piece->of.box;
    if (begins && !tensor.pieces.empty()) check_end(tensor, where);
    check_next(tensor, *piece, begins ? 0 : tensor.pieces.back().end(), where);
    if (!begins && piece->count == 0) refuse_overlap(tensor.pieces.back(), *piece, where);
    tensor.pieces.push_back(*piece);
  }
  if (!tensors.empty()) check_whole(tensors.back(), where);
  return tensors;
}

}  // namespace cohort::checkpoint
