// The StagingCopy copies onto the stages of the SharedControlBlock, by whichever way is faster at the moment.
// Between cores that share a cache a plain copy is best. Between cores that do not, every line of it must first be fetched from the core
// that read it last, and copying around the cache is best (net/stream_copy.h). 512 KiB onto a stage that a peer has read: 11 us plain and
// 37 around the cache between near cores, 211 and 19 between far ones. Virtual cores migrate between the two cases, so it is measured: the
// first two pages of a piece are always copied plainly, and how long that takes decides about the rest. Owner: Peers. Threads: the one that
// runs the collective. Each rank decides for itself: how a piece was written changes no bit of it.
#pragma once
#include <cstddef>

#include "cohort/base/deadline.h"

namespace cohort::collective {

class StagingCopy {
 public:
  void put(std::byte* to, const std::byte* from, std::size_t bytes);
  bool near() const { return confidence_ >= kSure; }
  void record(Clock::duration pages_took);  // what put() learns from each piece

 private:
  static constexpr int kSure = 2, kMost = 4;
  int confidence_ = 0;  // pieces, nearly in a row, that began quickly
};

}  // namespace cohort::collective
