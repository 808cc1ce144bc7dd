// The variables each rank of `cohort run` gets: ours, torchrun's and horovodrun's, on top of what the launcher itself was given. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cohort/group/rank_info.h"

namespace cohort::launch {

struct RankSetting {
  int rank = 0;
  int size = 1;
  std::vector<int> ranks_per_host{};  // empty: one host
  int host = 0;                       // which of them
  int first = 0;                      // the first rank on it
  std::string host_name{};            // as the job calls it; empty: the job has one host
  std::string interface {};           // through which ranks are to be reached; empty: they detect it
  std::string job;
  std::string rendezvous;   // host:port of the coordinator
  std::string secret_file;  // /proc/<launcher>/fd/<n>
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string role = "default";
  double start_timeout = 30;
  int threads = 1;
  bool threads_given = false;  // --threads wins over an OMP_NUM_THREADS that is already there
  std::string log_level;
  bool tls = false;
  int streams = -1;       // -1: as in the environment
  bool shards = false;    // elastic: each worker has a part of the state only
  std::string launch{};   // elastic: a number of this launch, which no other has
  std::string elastic{};  // time between a worker's heartbeats, where workers come and go; empty: they do not
};

// Horovod's view of several hosts: a rank and those with the same local rank elsewhere.
struct CrossRank {
  int rank = 0;  // this host among those that have such a local rank
  int size = 1;
};
CrossRank cross_rank(const std::vector<int>& ranks_per_host, int host, int local_rank);

group::Environment rank_environment(const group::Environment& inherited, const RankSetting& setting);

// Variables that belong to a host or a login and are not carried from one to another.
bool is_host_local(std::string_view variable);

// "NAME=value" strings for execve.
std::vector<std::string> environ_strings(const group::Environment& environment);

}  // namespace cohort::launch
