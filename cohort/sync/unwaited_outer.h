// local_sgd and diloco that wait for nobody: the centre is the anchor, and every rank moves it by what it has moved itself.
//   u_i = x_i - b_i        every h steps of rank i's own:  c <- c + lr u_i / n,  b_i <- x_i <- c        b_i: the centre as i last saw it
// and at every n-th of these meetings of a part, with s the sum of the n that came:
//   m <- beta m + s / n    c <- c + lr beta m           (Nesterov; else with the m of before)
// which is the delayed Nesterov momentum of asynchronous DiLoCo (Liu et al. 2024): n meetings in a row from the same centre are one step of
// diloco's outer SGD. With lr 1 and no momentum it is local_sgd's: c = c_0 + 1/n sum of everything that ranks have moved and brought, each
// movement counted once, also late ones. That is what is conserved, whoever is late: a rank that comes half as often counts half as much.
// Owner, threads, failure: as centre.h.
#pragma once
#include <string_view>

#include "cohort/sync/centre.h"

namespace cohort::sync {

struct UnwaitedOuter {
  std::string_view name;
  std::int64_t every = 1;
  Seconds patience{};
  double lr = 1, momentum = 0;
  bool nesterov = false;
};
std::unique_ptr<Strategy> make_unwaited(const UnwaitedOuter& options);

}  // namespace cohort::sync
