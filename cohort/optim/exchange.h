// Numbers that one rank has, or two with the same values (a buddy keeps the other's), and that all need while a step is prepared: they
// travel by one sum, in which every other rank has zeros. So all get them without rounding, and the sign of a zero is dropped, on one rank
// as on many.
//   const std::size_t at = exchange.open(3);                 // on every rank, in the same order
//   if (mine) exchange.put(at, values, 3);
//   exchange.run(side);                                      // collective, unless each rank has all that it needs
//   exchange.get(at, 2)
// Owner: a rule. Threads: one. Failure: the communicator's.
#pragma once
#include <span>
#include <vector>

#include "cohort/optim/side.h"

namespace cohort::optim {

class Exchange {
 public:
  std::size_t open(std::size_t n) {
    numbers_.resize(numbers_.size() + n + 1);
    return numbers_.size() - n - 1;
  }
  template <class T>
  void put(std::size_t at, const T* from, std::size_t n) {
    numbers_[at] = 1;
    for (std::size_t i = 0; i < n; ++i) numbers_[at + 1 + i] = static_cast<double>(from[i]);
  }
  void run(Side& side) {
    if (!side.replicated() && !side.alone() && side.ranks() > 1) side.sum(piece(std::span(numbers_)));
  }
  double get(std::size_t at, std::size_t i) const { return numbers_[at] > 0 ? numbers_[at + 1 + i] / numbers_[at] + 0.0 : 0; }

 private:
  std::vector<double> numbers_;  // of each: by how many ranks it was put, then the sum of what they put
};

}  // namespace cohort::optim
