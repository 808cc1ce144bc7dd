// Processor, caches, memory, load, clock.
#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cohort/base/bytes.h"
#include "cohort/base/text.h"
#include "cohort/bench/doctor/doctor.h"
#include "cohort/bench/results.h"
#include "cohort/collective/kernels/kernels.h"

namespace cohort::bench::doctor {
namespace {

constexpr std::uint64_t kLittleMemory = 1_GiB;

// "max 100000" or "150000 100000" of cgroup v2; quota and period files of v1. In cores.
std::optional<double> cpu_quota() {
  const auto v2 = setting_file("/sys/fs/cgroup/cpu.max");
  const auto words = split(v2, ' ');
  if (words.size() == 2 && words[0] != "max") return parse_real(words[0]) / parse_real(words[1]);
  const auto quota = setting_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period = setting_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota.empty() || quota == "-1" || period.empty()) return std::nullopt;
  return parse_real(quota) / parse_real(period);
}

std::optional<std::uint64_t> memory_limit() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const auto text = setting_file(path);
    if (text.empty() || text == "max") continue;
    const auto bytes = static_cast<std::uint64_t>(parse_real(text));
    if (bytes < (1ULL << 60)) return bytes;  // v1 writes a huge number for none
  }
  return std::nullopt;
}

std::uint64_t meminfo(std::string_view key) {
  const auto text = setting_file("/proc/meminfo");
  for (const auto line : split(text, '\n')) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    return std::strtoull(std::string(trim(line.substr(key.size() + 1))).c_str(), nullptr, 10) * (line.ends_with("kB") ? 1024 : 1);
  }
  return 0;
}

struct TopologyEnd {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
};
std::unique_ptr<hwloc_topology, TopologyEnd> topology() {
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return nullptr;
  std::unique_ptr<hwloc_topology, TopologyEnd> owner{t};
  return hwloc_topology_load(t) == 0 ? std::move(owner) : nullptr;
}

std::string cache(hwloc_topology_t t, hwloc_obj_type_t type, std::string_view name) {
  const int n = hwloc_get_nbobjs_by_type(t, type);
  if (n <= 0) return {};
  return fmt::format("{} {} x {}, ", name, n, format_bytes(hwloc_get_obj_by_type(t, type, 0)->attr->cache.size));
}

}  // namespace

Finding judge_cores(int online, int allowed, std::optional<double> quota) {
  const auto text = fmt::format("{} of {} cores may be used{}", allowed, online, quota ? fmt::format(", quota {:.1f} cores", *quota) : "");
  if (quota && *quota < allowed)
    return {Level::warn, "cores", text,
            "the container's quota stops ranks in the middle of a step: start no more ranks than the quota, or raise it"};
  if (allowed == 1) return {Level::note, "cores", text, "ranks will take turns on one core: fine for trying things out, not for speed"};
  if (allowed < online)
    return {Level::note, "cores", text, "affinity (taskset, cpuset) excludes the rest; `cohort run` keeps to what is allowed"};
  return {Level::ok, "cores", text, ""};
}

void look_at_processor(Findings& findings) {
  cpu_set_t set;
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  findings.push_back(judge_cores(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), allowed, cpu_quota()));
  std::string sets;
  for (const auto& k : collective::runnable_kernels()) sets += fmt::format("{}{}", sets.empty() ? "" : ", ", k.name);
  const auto in_use = collective::kernels().name;
  Finding simd{Level::ok, "kernels", fmt::format("{} ({} can run on this {})", in_use, sets, bench::this_machine().model), ""};
  if (in_use == "plain")
    simd.level = Level::note, simd.advice = "sums run without AVX2 or AVX-512: several times slower on data in the caches";
  findings.push_back(simd);
}

void look_at_topology(Findings& findings) {
  const auto t = topology();
  if (!t) return findings.push_back({Level::note, "topology", "hwloc cannot read it", "ranks are bound to cores in plain order"});
  const int nodes = hwloc_get_nbobjs_by_type(t.get(), HWLOC_OBJ_NUMANODE);
  const int cores = hwloc_get_nbobjs_by_type(t.get(), HWLOC_OBJ_CORE), threads = hwloc_get_nbobjs_by_type(t.get(), HWLOC_OBJ_PU);
  auto caches =
      cache(t.get(), HWLOC_OBJ_L1CACHE, "L1d") + cache(t.get(), HWLOC_OBJ_L2CACHE, "L2") + cache(t.get(), HWLOC_OBJ_L3CACHE, "L3");
  if (caches.size() > 2) caches.resize(caches.size() - 2);
  findings.push_back({Level::ok, "caches", caches.empty() ? "unknown" : caches, ""});
  Finding numa{Level::ok, "numa", fmt::format("{} node{}, {} cores, {} hardware threads", nodes, nodes == 1 ? "" : "s", cores, threads),
               ""};
  if (nodes > 1)
    numa.level = Level::note, numa.advice = "bind ranks (`cohort run` does): memory of the other node is slower";
  else if (threads > cores)
    numa.level = Level::note, numa.advice = "two hardware threads share a core: one rank per core is usually fastest";
  findings.push_back(numa);
}

Finding judge_memory(std::uint64_t total, std::uint64_t available, std::optional<std::uint64_t> group_limit) {
  const auto text = fmt::format("{} free of {}{}", format_bytes(available), format_bytes(total),
                                group_limit ? fmt::format(", this container at most {}", format_bytes(*group_limit)) : "");
  if (available < kLittleMemory || (group_limit && *group_limit < kLittleMemory))
    return {Level::warn, "memory", text, "large models and buffers will not fit: a rank that runs out is killed by the kernel"};
  return {Level::ok, "memory", text, ""};
}

void look_at_memory(Findings& findings) {
  findings.push_back(judge_memory(meminfo("MemTotal"), meminfo("MemAvailable"), memory_limit()));
  const auto pages = meminfo("HugePages_Total");
  const auto shmem = setting_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  findings.push_back({Level::ok, "huge pages",
                      fmt::format("{} reserved; transparent for shared memory: {}", pages, shmem.empty() ? "unknown" : shmem), ""});
}

Finding judge_load(double one_minute, int cores) {
  const auto text = fmt::format("{:.2f} over the last minute, {} cores", one_minute, cores);
  if (one_minute > 0.5 * cores)
    return {Level::note, "load", text, "the machine is busy: ranks wait for a core and benchmarks mean little now"};
  return {Level::ok, "load", text, ""};
}

double load_now() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

void look_at_load(Findings& findings) { findings.push_back(judge_load(load_now(), bench::this_machine().cores)); }

void look_at_clock(Findings& findings) {
  const auto source = setting_file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const bool fast = source == "tsc" || source == "kvm-clock" || source == "arch_sys_counter" || source.empty();
  findings.push_back({fast ? Level::ok : Level::note, "clock", source.empty() ? "unknown source" : source,
                      fast ? "" : "reading the time is a system call here: deadlines and timings cost about a microsecond each"});
}

}  // namespace cohort::bench::doctor
