// Small integers that mean different things get different types: Rank{3} is not Epoch{3}.
// Owner: everyone. Threads: values, any. Failure: none.
#pragma once
#include <compare>
#include <cstdint>

namespace cohort {

struct Rank {
  std::int32_t value = -1;
  constexpr auto operator<=>(const Rank&) const = default;
  constexpr explicit operator bool() const { return value >= 0; }
};
inline constexpr Rank kNoRank{};

// One membership of the job. A changed membership is a new epoch, never a mutated one.
struct Epoch {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const Epoch&) const = default;
};

// Matches a send with its receive. channel separates communicators, number separates operations of one.
struct Tag {
  std::uint32_t channel = 0;
  std::uint32_t number = 0;
  constexpr auto operator<=>(const Tag&) const = default;
};

inline constexpr std::uint32_t kCollectiveTags = 1u << 31;  // numbers from here on are the collectives'; below, the callers' own

// All tags of one channel with first <= number <= last.
struct TagRange {
  std::uint32_t channel = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  constexpr bool holds(Tag t) const { return t.channel == channel && first <= t.number && t.number <= last; }
};

}  // namespace cohort
