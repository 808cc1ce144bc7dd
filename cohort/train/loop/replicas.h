// Replicas: tensors that are replicated on every rank, bit for bit. A fault of a processor or a memory changes one of them silently, and
// from then on ranks diverge, or all of them learn something wrong. So ranks compare checksums now and then:
//   1 each takes a checksum (crc32c) of every tensor, and one of all of them; these are gathered, 8 bytes a rank
//   2 only where they differ are those of every tensor gathered, and every rank finds the same first difference
// One changed bit of a tensor is always seen; of 2^32 other changes one is not. A rank is named when more than half of the ranks have
// the same other checksum; else all are, with their checksums.
// Owner: TrainLoop. Threads: one. Failure: as the communicator's.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/nn/blocks.h"

namespace cohort::train {

std::vector<std::uint32_t> checksums(const nn::NamedTensors& tensors);

// sums: of every tensor, of rank 0, then of rank 1 .. none: they are equal. "after update 200 rank 2 holds other values than the others:
// .."
// who: the ranks, where they are not 0, 1 ..
std::optional<std::string> describe_divergence(std::span<const std::string> names, std::span<const std::uint32_t> sums, std::int64_t step,
                                               std::span<const Rank> who = {});

// Collective: what describe_divergence() says, the same on every rank. Of the first `holders` ranks; -1: of all.
std::optional<std::string> compare_replicas(collective::Communicator& comm, const nn::NamedTensors& tensors, std::int64_t step,
                                            int holders = -1);
// Likewise where each of these groups of ranks, all of one size, holds other tensors (those along dp of a mesh).
std::optional<std::string> compare_replicas(collective::Communicator& comm, const nn::NamedTensors& tensors, std::int64_t step,
                                            std::span<const std::vector<Rank>> groups);

// What a run prints where no tensor is replicated.
inline constexpr const char* kNothingToCompare = "check_replicas has nothing to compare: all parameters are sharded";

}  // namespace cohort::train
