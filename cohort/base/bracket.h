// The canonical bracket as a plan: where n values in rank order are split, so that every algorithm adds in the same order.
// B(lo, hi) = x_lo for one value, else B(lo, lo + bracket_split(hi - lo)) op B(lo + bracket_split(hi - lo), hi).
// Whole aligned groups of 2^k ranks are subtrees of it: recursive doubling, trees and blocks of sources can follow it without a plan.
// Threads: pure, any. Failure: none; n >= 2 is the caller's promise.
#pragma once
#include <cstddef>

namespace cohort {

// Values of the left branch: the largest power of two smaller than n.
constexpr std::size_t bracket_split(std::size_t n) {
  std::size_t left = 1;
  while (left < n - left) left *= 2;
  return left;
}

}  // namespace cohort
