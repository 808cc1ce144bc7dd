// All-reduce over several hosts in three layers, chunk by chunk:
//   inside   ranks of a host add up, in shared memory, each share of the chunk into the memory of the rank that owns the share
//   between  owners of the same share on all hosts reduce it among themselves, over links
//   inside   everybody copies the shares it does not own from their owners
// There are as many shares as the smallest host has ranks, so that all its ranks drive links at the same time. A few chunks are under way
// at once: while links carry one, memory serves the next. Buffers from allocate() are used in place; others go through a few chunks of such
// memory. With one host only the inside is left, with one rank on each host only the between. Threads: the one that runs the verb. Failure:
// as Peers. The bits are the canonical ones when Hosts::nested() and the plan between hosts are canonical.
#pragma once
#include "cohort/collective/cost.h"
#include "cohort/collective/kernels.h"
#include "cohort/collective/peers.h"
#include "cohort/collective/walk.h"

namespace cohort::collective {

// between: who talks to whom among hosts, of (host, hosts, elements).
void reduce_in_layers(Peers& peers, Piece data, const Reduction& how, Plan (*between)(int, int, std::size_t));

// rounds: messages one after the other of a chunk between hosts.
Seconds layers_cost(const Shape& shape, const Calibration& k, double rounds);

}  // namespace cohort::collective
