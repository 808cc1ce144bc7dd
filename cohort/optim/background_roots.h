// Roots of statistics that are computed by threads in the background, or by another rank, between the step that asks for them and the one
// that uses them. They are nothing but a faster way to inverse_root(): one is used only for the very matrix that it was made of, bit by
// bit, and what is not there is computed on the spot. So steps repeat, whoever computes, and after a restart. Owner: a rule. Threads: any.
// Failure: none; a root may be empty (matrix_root.h).
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/optim/matrix_root.h"
#include "cohort/optim/side.h"

namespace cohort::optim {

struct Statistic {
  std::string key;  // of the tensor and the place in it
  std::vector<double> matrix;
  std::size_t n = 0;
  RootOptions options;
};

class BackgroundRoots {
 public:
  // In the background of this rank: all of them or, where the side is replicated, those that fall to it.
  void begin(std::vector<Statistic> all, Side& side);
  // Collective, where the side is replicated: each root from the rank that it fell to.
  void share(std::vector<Statistic> all, Side& side);
  std::vector<double> take(const Statistic& statistic);  // waits; afterwards it is forgotten

 private:
  void begin_one(Statistic statistic, BackgroundPool& pool);
  void put(Statistic statistic, std::vector<double> root);
  struct Entry {
    Statistic statistic;
    std::vector<double> root{};
  };
  struct Begun {
    std::shared_ptr<Entry> entry;
    BackgroundPool::Ticket ticket{};  // none: the root is there
  };
  std::mutex mutex_;
  std::map<std::string, Begun> begun_;  // guarded by mutex_
};

}  // namespace cohort::optim
