// What a rank believes the next operation is. Ranks compare fingerprints before data moves: a mismatch names both sides
// at once instead of hanging or mixing up bytes.
// Threads: values, any. It travels as plain bytes between processes of one build (the handshake compares versions).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cohort/collective/types.h"

namespace cohort::collective {

struct Fingerprint {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::u8;
  Op op = Op::sum;
  std::uint8_t pieces = 1;           // of a grouped call, saturating
  std::int32_t root = -1;            // rank in the communicator, -1 where the collective has none
  std::uint64_t count = 0;           // elements, all pieces together
  std::uint64_t layout = 0;          // hash of per-rank counts, per-piece counts and scales
  std::uint64_t number = 0;          // of the operation on this communicator
  std::array<char, 24> algorithm{};  // asked for by the caller; empty: the selector's choice
  std::array<char, 56> name{};       // cut when longer; the digest covers the whole name
  std::uint64_t digest = 0;          // over everything above and the whole name, never 0

  std::string text() const;  // all_reduce 'grad3' of 1024 f32, sum
};

// Fills name, algorithm and digest.
void complete_fingerprint(Fingerprint& print, std::string_view name, std::string_view algorithm);

// Folds one more number into a hash.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}
std::uint64_t hash_of(std::span<const std::size_t> counts);

// "rank 2 called broadcast 'w' ..., rank 0 called all_reduce 'grad3' ...; every rank must make the same call"
std::string disagreement(const Fingerprint& left, int left_rank, const Fingerprint& right, int right_rank);

}  // namespace cohort::collective
