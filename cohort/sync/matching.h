// Which ranks meet in pairs: a random perfect matching for every step, the same on every rank that has the seed. Of an odd number of ranks
// one stays alone. Pure. Owner: values. Threads: any. Failure: none.
#pragma once
#include <cstdint>
#include <vector>

namespace cohort::sync {

std::vector<int> matching(std::uint64_t seed, std::int64_t step, int ranks);  // by rank: its partner; itself: none

// Each rank draws another one by itself, all of them equally likely; a single rank itself.
std::vector<int> pulled_ranks(std::uint64_t seed, std::int64_t step, int ranks);

}  // namespace cohort::sync
