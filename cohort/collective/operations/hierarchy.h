// Hierarchical all-reduce over several hosts in three steps, chunk by chunk:
//   inside   ranks of a host add up, in shared memory, each share of the chunk into the memory of the rank that owns the share
//   between  owners of the same share on all hosts reduce it among themselves, over links
//   inside   every rank copies the shares it does not own from their owners
// There are as many shares as the smallest host has ranks, so that all its ranks drive links at the same time. Chunks are pipelined: while
// links carry one, the next is reduced in memory. Buffers from allocate() are used in place; others go through a few chunks of such memory.
// With one host only the steps inside are left, with one rank on each host only the one between. Threads: the one that runs the collective.
// Failure: as Peers. The bits are the canonical ones when Hosts::nested() and the plan between hosts are canonical.
#pragma once
#include "cohort/collective/cost/cost.h"
#include "cohort/collective/kernels/kernels.h"
#include "cohort/collective/peers/execute_plan.h"
#include "cohort/collective/peers/peers.h"

namespace cohort::collective {

// between: the plan among hosts, of (host, hosts, elements).
void reduce_hierarchically(Peers& peers, Piece data, const Reduction& how, Plan (*between)(int, int, std::size_t));

// rounds: messages one after the other of a chunk between hosts.
Seconds hierarchy_cost(const Shape& shape, const Calibration& k, double rounds);

}  // namespace cohort::collective
