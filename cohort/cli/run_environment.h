// The variables each rank of `cohort run` gets: ours, torchrun's and horovodrun's, on top of what the launcher itself was given. Pure.
#pragma once
#include <string>
#include <vector>

#include "cohort/group/place.h"

namespace cohort::cli {

struct RankSetting {
  int rank = 0;
  int size = 1;
  std::string job;
  std::string rendezvous;   // host:port of the coordinator
  std::string secret_file;  // /proc/<launcher>/fd/<n>
  int master_port = 0;
  std::string role = "default";
  double start_timeout = 30;
  int threads = 1;
  bool threads_given = false;  // --threads wins over an OMP_NUM_THREADS that is already there
  std::string log_level;
};

group::Environment rank_environment(const group::Environment& inherited, const RankSetting& setting);

// "NAME=value" strings for execve.
std::vector<std::string> spelled_out(const group::Environment& environment);

}  // namespace cohort::cli
