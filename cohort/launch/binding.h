// Which cores each rank runs on, and how many threads it should use: plan_* are pure functions of the host's shape.
// Threads: any. Failure: Kind::system when the topology cannot be read.
#pragma once
#include <string>
#include <vector>

namespace cohort::launch {

struct HostTopology {
  std::vector<std::vector<int>> cores;  // of each core we may use: its hardware threads (CPU numbers)
  std::vector<std::vector<int>> nodes;  // of each NUMA node we may use: its CPU numbers
  double quota = 0;                     // CPUs that the container's cgroup grants; 0: no limit
  int gpus = 0;
};
HostTopology read_host_topology();

// CPU numbers for each rank; an empty list is "anywhere". how: none, core, numa, auto.
std::vector<std::vector<int>> plan_binding(const HostTopology& host, const std::string& how, int ranks);
int plan_threads(const HostTopology& host, int ranks);  // cores (or what the quota grants) / ranks, at least one
int usable_cores(const HostTopology& host);
std::string list_cpus(const std::vector<int>& cpus);  // "0-3,8"; "any" when empty

}  // namespace cohort::launch
