#include "cohort/train/loop/shard_plan.h"

namespace cohort::train {

std::vector<ShardPiece> read_pieces(std::span<const std::int64_t> list, int holder) {
  constexpr std::size_t kFields = 4;
  std::vector<ShardPiece> pieces;
  for (std::size_t i = 0; i + kFields <= list.size(); i += kFields)
    pieces.push_back({list[i], list[i + 1], list[i + 2], static_cast<ShardSource>(list[i + 3]), holder});
  return pieces;
}

std::vector<std::vector<ShardPiece>> by_key(std::span<const ShardPiece> all, std::size_t keys) {
  std::vector<std::vector<ShardPiece>> sorted(keys);
  for (const ShardPiece& piece : all) sorted.at(static_cast<std::size_t>(piece.key)).push_back(piece);
  return sorted;
}

std::vector<ShardPiece> cover(std::span<const ShardPiece> pieces, std::int64_t elements) {
  std::vector<ShardPiece> taken;
  const auto better = [](const ShardPiece& a, const ShardPiece& b) {  // of equals the lowest rank's: it comes first
    return a.source != b.source ? a.source < b.source : a.last() > b.last();
  };
  for (std::int64_t at = 0; at < elements; at = taken.back().last()) {
    const ShardPiece* best = nullptr;
    for (const ShardPiece& p : pieces)
      if (p.first <= at && p.last() > at && (best == nullptr || better(p, *best))) best = &p;
    if (best == nullptr) break;
    taken.push_back(*best);
  }
  return taken;
}

bool covers(std::span<const ShardPiece> taken, std::int64_t elements) {
  return elements == 0 || (!taken.empty() && taken.back().last() >= elements);
}

Rank successor_of(Rank rank, std::span<const std::int32_t> leaving) {
  const auto n = static_cast<std::int32_t>(leaving.size());
  for (std::int32_t k = 1; k < n; ++k) {
    const std::int32_t next = (rank.value + k) % n;
    if (leaving[static_cast<std::size_t>(next)] == 0) return Rank{next};
  }
  return kNoRank;
}

}  // namespace cohort::train
