#include "cohort/launch/binding.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "cohort/base/error.h"

namespace cohort::launch {
namespace {

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

std::vector<int> allowed_in(hwloc_const_bitmap_t set, const cpu_set_t& allowed) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
    if (cpu < CPU_SETSIZE && CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  return cpus;
}

std::vector<std::vector<int>> objects_of(hwloc_topology_t topology, hwloc_obj_type_t type, const cpu_set_t& allowed) {
  std::vector<std::vector<int>> all;
  for (hwloc_obj_t o = hwloc_get_next_obj_by_type(topology, type, nullptr); o != nullptr; o = hwloc_get_next_obj_by_type(topology, type, o))
    if (auto cpus = allowed_in(o->cpuset, allowed); !cpus.empty()) all.push_back(std::move(cpus));
  return all;
}

// "max 100000" or "150000 100000": microseconds of CPU per period.
double read_quota() {
  std::ifstream two("/sys/fs/cgroup/cpu.max");
  std::string limit;
  double period = 0;
  if (two >> limit >> period) return limit == "max" || period <= 0 ? 0 : std::stod(limit) / period;
  double quota = 0;
  std::ifstream one("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), one_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (one >> quota && one_period >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

int count_gpus() {
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  return count;
}

}  // namespace

HostTopology read_host_topology() {
  HostTopology host;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw_system("sched_getaffinity");
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw_failure(Kind::system, "hwloc cannot describe this host");
  const Topology topology(raw, hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) throw_failure(Kind::system, "hwloc cannot read the topology of this host");
  host.cores = objects_of(raw, HWLOC_OBJ_CORE, allowed);
  host.nodes = objects_of(raw, HWLOC_OBJ_NUMANODE, allowed);
  if (host.cores.empty()) host.cores = objects_of(raw, HWLOC_OBJ_PU, allowed);  // some virtual machines report no cores
  host.quota = read_quota();
  host.gpus = count_gpus();
  return host;
}

int usable_cores(const HostTopology& host) {
  const int cores = std::max<int>(1, static_cast<int>(host.cores.size()));
  return host.quota > 0 ? std::min(cores, std::max(1, static_cast<int>(std::ceil(host.quota)))) : cores;
}

int plan_threads(const HostTopology& host, int ranks) { return std::max(1, usable_cores(host) / std::max(1, ranks)); }

std::vector<std::vector<int>> plan_binding(const HostTopology& host, const std::string& how, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::vector<int>> plan(n);
  const std::size_t cores = host.cores.size(), nodes = host.nodes.size();
  const bool by_node = how == "numa" || (how == "auto" && nodes > 1 && n >= nodes);
  for (std::size_t r = 0; r < n; ++r) {
    if (by_node && nodes > 0) plan[r] = host.nodes[r * nodes / n];
    if (how != "core" || cores == 0) continue;
    const std::size_t first = r * cores / n;  // neighbours in rank are neighbours in cores; too many ranks share, neighbours first
    const std::size_t last = n <= cores ? (r + 1) * cores / n : first + 1;
    for (std::size_t c = first; c < last; ++c) plan[r].insert(plan[r].end(), host.cores[c].begin(), host.cores[c].end());
  }
  return plan;
}

std::string list_cpus(const std::vector<int>& cpus) {
  if (cpus.empty()) return "any";
  std::vector<int> sorted = cpus;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i;
    while (end + 1 < sorted.size() && sorted[end + 1] == sorted[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", sorted[i]);
    if (end > i) text += fmt::format("-{}", sorted[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace cohort::launch
