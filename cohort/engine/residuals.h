// What codecs kept of gradients (codec/feedback.h), carried to another set of ranks: what those that stay had not sent is sent later, once.
//   Residuals mine = capture_residuals(engine, comm.size());
//   hand_over_residuals(comm, mine, leaves);        // before ranks leave as planned; what a lost rank had is lost with it
//   restore_residuals(new_comm, new_engine, &mine); // nullptr on a rank that has just come
// A gradient's residual is part of a mean over the ranks (or of a sum): it is scaled so that it moves parameters as far as it would have.
// Owner: values. Threads: the one that trains. Failure: the communicator's.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "cohort/engine/engine.h"

namespace cohort::engine {

struct Residuals {
  struct Run {
    std::size_t first = 0;
    std::vector<float> values;
  };
  std::map<std::string, std::vector<float>> sent;  // by parameter: of this rank's gradients
  std::multimap<std::string, Run> sums;            // of the sums that this rank hands out
  double weight = 0;
  int ranks = 0;
};

Residuals capture_residuals(const Engine& engine, int ranks);
void hand_over_residuals(collective::Communicator& comm, Residuals& mine, bool leaves);
void restore_residuals(collective::Communicator& comm, const Engine& engine, const Residuals* mine);

}  // namespace cohort::engine
