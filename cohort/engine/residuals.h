// What codecs kept of gradients (codec/feedback.h), carried to another set of ranks: what those that stay had not sent is sent later, once.
//   Residuals mine = capture_residuals(engine, comm.size());
//   hand_over_residuals(comm, mine, leaves);        // before ranks leave as planned; what a lost rank had is lost with it
//   restore_residuals(new_comm, new_engine, &mine); // nullptr on a rank that has just come
//   read_residuals(checkpoint, engine, rank, ranks); // written as each rank's own (tensor_file.h)
// A codec's memory, such as the directions of powersgd, is the same on all ranks afterwards, too.
// A gradient's residual is part of a mean over the ranks (or of a sum): it is scaled so that it moves parameters as far as it would have.
// Owner: values. Threads: the one that trains. Failure: the communicator's.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "cohort/checkpoint/contents.h"
#include "cohort/engine/engine.h"

namespace cohort::engine {

struct Residuals {
  struct Run {
    std::size_t first = 0;
    std::vector<float> values;
  };
  std::map<std::string, std::vector<float>> sent;    // by parameter: of this rank's gradients; "<parameter>/velocity": its momentum
  std::multimap<std::string, Run> sums;              // of the sums that this rank hands out
  std::map<std::string, std::vector<float>> memory;  // by parameter: what a step begins with, the same on all ranks
  double weight = 0;
  int ranks = 0;
};

Residuals capture_residuals(const Engine& engine, int ranks);
void hand_over_residuals(collective::Communicator& comm, Residuals& mine, bool leaves);
void restore_residuals(collective::Communicator& comm, const Engine& engine, const Residuals* mine);

// Bit for bit on the number of ranks that the checkpoint is of. On another one every rank takes its share of what all had not sent, and of
// what owners had not handed out its own part. Nothing where it has none.
void read_residuals(const checkpoint::Contents& from, const Engine& engine, int rank, int ranks);

}  // namespace cohort::engine
