// One rank of `cohort bench step`: trains a model for real and says how fast, and where the loss came to.
//   cohort    the step as the product does it: Loader, Engine, one commit, one fused update.
//   norms     the same with options.norms: every rank measures its own gradients before they are added up.
//   waits     the same with engine.publish=wait: parameters of ZeRO 1 and 2 travel before a step ends.
//   unsynced  every rank by itself with torch::optim::SGD; ranks synchronize at the two ends of the timed window only. What communication
//   costs
//             is the distance between the two.
// Owner: the task. Threads: the main one. Failure: as the modules'.
#pragma once
#include <cstdint>
#include <string>

#include "cohort/job/job.h"

namespace cohort::cli::worker {

struct StepRun {
  std::string implementation = "cohort";  // cohort | norms | waits | unsynced
  std::string model;                      // a spec of the zoo
  std::string data;                       // a data set; empty: synthetic, of the model's shape
  std::int64_t batch = 64;                // of one rank
  int warm = 5;                           // steps before the window
  int steps = 50;                         // of the window
  std::int64_t tokens = 0;                // of a sample of a synthetic set; 0: as many as the model can
  std::string rule = "sgd";
  double lr = 0.05;
  std::uint64_t seed = 1;
  int loader_threads = 0;
  std::string strategy = "all_reduce(op=sum)";
  std::string recompute = "none";
  bool early_update = false;
  std::string out;  // rank 0 writes its line there; empty: stdout
};

// The line rank 0 has to say (bench_step_results.h in cli reads it); empty on the other ranks.
std::string run_steps(const Job& job, const StepRun& run);

}  // namespace cohort::cli::worker
