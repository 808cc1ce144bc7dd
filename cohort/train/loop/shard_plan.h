// Who gives which piece of a sharded state to the ranks of a new roster: integers only, shards.cc moves what is planned here. A key is a
// number for one parameter or one of its optimizer's states, the same on all ranks; elements are counted in its flattened tensor.
// Owner: values. Threads: any. Failure: none.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cohort/base/ids.h"

namespace cohort {

enum class ShardSource : std::int64_t { own, handed, kept };  // an owner's piece | one of a rank that left | a buddy's copy

struct ShardPiece {
  std::int64_t key = 0, first = 0, count = 0;
  ShardSource source = ShardSource::own;
  int holder = 0;  // rank
  std::int64_t last() const { return first + count; }
  bool operator==(const ShardPiece&) const = default;
};

// A rank's list as it travels: key, first, count, source, and the next.
std::vector<ShardPiece> read_pieces(std::span<const std::int64_t> list, int holder);
std::vector<std::vector<ShardPiece>> by_key(std::span<const ShardPiece> all, std::size_t keys);

// The pieces to take, so that every element of a tensor comes at least once: an owner's before one that was handed over, and that before a
// buddy's copy. Layouts of two epochs may be among them, with the same values. They end before the first element that nobody has.
std::vector<ShardPiece> cover(std::span<const ShardPiece> pieces, std::int64_t elements);
bool covers(std::span<const ShardPiece> taken, std::int64_t elements);

// Who takes over from a rank that leaves: the next that stays. kNoRank: nobody does.
Rank heir_of(Rank rank, std::span<const std::int32_t> leaving);

}  // namespace cohort
