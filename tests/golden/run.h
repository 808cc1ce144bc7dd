// A training run whose bits depend on nothing but the engine: a gradient is a tensor of numbers that are written down as a formula, no
// product of matrices is taken, so that every processor and every torch has the same ones.
//   TrainedRun run = train({.strategy = "zero(stage=2)", .ranks = 3});
// Owner: the caller. Threads: makes its own, one a rank. Failure: that of the first rank.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/engine/options.h"

namespace cohort::golden {

struct Case {
  std::string name;
  std::string strategy = "all_reduce(op=average)";
  std::string rule = "adamw(lr=0.01)";
  int ranks = 2;
  int steps = 4;
  int backwards = 1;  // of a step: gradients are accumulated
  engine::EngineOptions options{};
};

struct TrainedRun {
  std::string parameters;         // sha256 of all bits, the same on every rank
  std::string shards;             // of what the ranks are to save, in the order of the ranks
  std::string norms;              // of the verdicts
  std::uint64_t moved = 0;        // bytes, all ranks, all steps
  std::uint64_t held[3] = {};     // bytes by the ledger after the last step, all ranks: parameters, gradients, optimizer
  std::uint64_t in_flight = 0;    // the most bytes of buckets in flight, of rank 0
  std::uint64_t allocations = 0;  // of a step on rank 0, in begin() and finish(), the fewest of all after the first
};

TrainedRun train(const Case& one);

}  // namespace cohort::golden
