// Which members of a communicator live on which host: pure, the same on every rank, with its own tests.
// Owner: Peers. Threads: constant after construction. Failure: none.
#pragma once
#include <cstddef>
#include <vector>

namespace cohort::collective {

class Hosts {
 public:
  Hosts() = default;
  // labels: one number per member; equal numbers share memory. Hosts are counted from 0 in the order of their first member.
  explicit Hosts(const std::vector<int>& labels);

  int count() const { return static_cast<int>(members_.size()); }
  int of(int member) const { return of_[static_cast<std::size_t>(member)]; }
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }  // in rank order
  int local_rank(int member) const;                                                                     // among the members of its host
  int fewest() const;  // members of the smallest host: as many can drive links between all hosts side by side
  int most() const;
  bool even() const { return fewest() == most(); }
  // Adding up inside each host in the canonical bracket and then over hosts in theirs gives the canonical bracket of all: hosts hold
  // consecutive ranks, a branch of it each. So it is with the same power of two on every host, and no more on the last.
  bool nested() const;

 private:
  std::vector<int> of_;                    // by member
  std::vector<std::vector<int>> members_;  // by host
};

}  // namespace cohort::collective
