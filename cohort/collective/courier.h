// The Courier copies onto the stages of the Board, by whichever way is faster at the moment.
// Between cores that share a cache a plain copy is best. Between cores that do not, every line of it must first be fetched from whoever
// read it last, and copying around the cache is best (net/stream_copy.h). 512 KiB onto a stage that a peer has read: 11 us plain and
// 37 around the cache between near cores, 211 and 19 between far ones. Cores of a virtual machine wander from one to the other, so it is
// watched: the first two pages of a piece always go plainly, and how long that takes says how the rest goes.
// Owner: Peers. Threads: the one that runs the verb. Each rank decides for itself: how a piece was written changes no bit of it.
#pragma once
#include <cstddef>

#include "cohort/base/deadline.h"

namespace cohort::collective {

class Courier {
 public:
  void put(std::byte* to, const std::byte* from, std::size_t bytes);
  bool near() const { return confidence_ >= kSure; }
  void saw(Clock::duration pages_took);  // what put() learns from each piece

 private:
  static constexpr int kSure = 2, kMost = 4;
  int confidence_ = 0;  // pieces, nearly in a row, that began quickly
};

}  // namespace cohort::collective
