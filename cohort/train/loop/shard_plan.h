// Which rank sends which piece of a sharded state to the ranks of a new roster: integers only, shards.cc moves what is planned here. A key
// is a number for one parameter or one of its optimizer's states, the same on all ranks; elements are counted in its flattened tensor.
// Owner: values. Threads: any. Failure: none.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cohort/base/ids.h"

namespace cohort::train {

enum class ShardSource : std::int64_t {
  owner,
  transferred,
  buddy
};  // an owner's piece | one transferred by a rank that left | a buddy copy

struct ShardPiece {
  std::int64_t key = 0, first = 0, count = 0;
  ShardSource source = ShardSource::owner;
  int holder = 0;  // rank
  std::int64_t last() const { return first + count; }
  bool operator==(const ShardPiece&) const = default;
};

// A rank's list as it travels: key, first, count, source, and the next.
std::vector<ShardPiece> read_pieces(std::span<const std::int64_t> list, int holder);
std::vector<std::vector<ShardPiece>> by_key(std::span<const ShardPiece> all, std::size_t keys);

// The pieces to take, so that every element of a tensor comes at least once: an owner's before a transferred one, and that before a buddy
// copy. Layouts of two epochs may be among them, with the same values. They end before the first element that no rank has.
std::vector<ShardPiece> cover(std::span<const ShardPiece> pieces, std::int64_t elements);
bool covers(std::span<const ShardPiece> taken, std::int64_t elements);

// The rank that a leaving one transfers its shards to: the next that stays. kNoRank: none stays.
Rank successor_of(Rank rank, std::span<const std::int32_t> leaving);

}  // namespace cohort::train
