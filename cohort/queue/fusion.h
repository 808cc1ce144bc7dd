// Which ready operations run as one. Small all-reduces of one dtype, op and scales share a buffer: one agreement, one reduction.
// Sums are element by element in the same bracket, so fusing changes no bit.
// Threads: pure functions.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "cohort/queue/signature.h"

namespace cohort::queue {

// Whether this may share a buffer at all: an all-reduce of cpu parts that all have one dtype, and no Adasum (its coefficients are per
// tensor).
bool fusible(const Signature& signature);

// Indices of `ready`, unit by unit, in order of each unit's first member. A unit takes every later operation that fits its kind and
// still fits into `most` bytes (looking past those that do not); what is larger than `most` stays alone. 0 turns fusion off.
std::vector<std::vector<std::size_t>> fusion_plan(std::span<const Signature* const> ready, std::size_t most);

}  // namespace cohort::queue
