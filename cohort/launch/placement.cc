#include "cohort/launch/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <sstream>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/launch/discovery.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kMostText = 1 << 20;
constexpr int kMasterPort = 29500;  // torchrun's own default

std::string value_of(const group::Environment& env, std::string_view name) {
  const auto at = env.find(name);
  return at == env.end() ? "" : at->second;
}

std::string read_host_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) throw_failure(Kind::usage, "--hostfile: '{}' cannot be read, or is empty", printable(path));
  return text.str().substr(0, kMostText);
}

// A shell runs the command, as in Horovod: a script with arguments will do.
group::Hosts run_discovery(const LaunchOptions& o, const group::Environment& environment) {
  DiscoveryPlan plan{.command = o.discovery_script, .slots_per_host = o.slots_per_host, .known = {}, .environment = environment};
  sigemptyset(&plan.signal_mask);
  return Discovery::ask_once(std::move(plan));
}

group::Hosts named_hosts(const LaunchOptions& o, const group::Environment& environment) {
  if (!o.hosts.empty()) {
    try {
      return group::parse_host_list(o.hosts, o.slots_per_host);
    } catch (const Failure& failure) {
      throw_failure(Kind::usage, "-H: {}", failure.what());
    }
  }
  if (!o.host_file.empty()) return group::parse_host_file(read_host_file(o.host_file), o.host_file, o.slots_per_host);
  return run_discovery(o, environment);
}

int count_here(const LaunchOptions& options, const HostTopology& host) {
  if (options.ranks == "auto") return usable_cores(host);
  if (options.ranks != "gpu") return static_cast<int>(parse_int(options.ranks));
  if (host.gpus == 0) throw_failure(Kind::usage, "-n gpu: this host has no GPU (/dev/nvidia0 does not exist)");
  return host.gpus;
}

// As many as there are slots, within the limits. Hosts that a script has not found yet may come; others may not.
void plan_elastic_hosts(LaunchPlan& plan, const group::Hosts& named) {
  const LaunchOptions& o = plan.options;
  int slots = 0;
  for (const auto& host : named) slots += host.slots;
  const int most = o.max_workers > 0 ? std::min(o.max_workers, slots) : slots;
  plan.ranks = o.ranks_given ? static_cast<int>(parse_int(o.ranks)) : most;
  if (!o.discovery_script.empty()) plan.ranks = std::max(plan.ranks, o.min_workers);
  plan.hosts = group::share_ranks(named, o.discovery_script.empty() ? plan.ranks : std::min(plan.ranks, slots));
  plan.pool = named;
  if (o.discovery_script.empty() && named.size() == 1 && group::names_this_host(named[0].name)) plan.hosts.clear();  // no agent is needed
}

void plan_hosts(LaunchPlan& plan) {
  const LaunchOptions& o = plan.options;
  if (o.ranks == "auto" || o.ranks == "gpu")
    throw_failure(Kind::usage, "-n {} counts what this host has; with several hosts give each its slots (host:N)", o.ranks);
  const group::Hosts named = named_hosts(o, plan.environment);
  if (o.elastic()) return plan_elastic_hosts(plan, named);
  plan.hosts = group::share_ranks(named, o.ranks_given ? static_cast<int>(parse_int(o.ranks)) : 0);
  plan.ranks = plan.hosts.back().first + plan.hosts.back().ranks;
  if (plan.hosts.size() == 1 && group::names_this_host(plan.hosts[0].name)) plan.hosts.clear();  // no agent is needed
}

void plan_node(LaunchPlan& plan) {
  const LaunchOptions& o = plan.options;
  NodePlan node{.nodes = o.nodes,
                .node = o.node,
                .master_addr = o.master_addr,
                .master_port = o.master_port == 0 ? kMasterPort : o.master_port,
                .secret_file = value_of(plan.environment, "COHORT_SECRET_FILE"),
                .job = o.job};
  if (node.job.empty()) node.job = value_of(plan.environment, "COHORT_JOB");
  if (node.job.empty()) node.job = fmt::format("{}-{}", node.master_addr, node.master_port);
  if (o.node < 0) throw_failure(Kind::usage, "--nnodes {} needs --node-rank (PET_NODE_RANK): which of them is this?", o.nodes);
  if (o.node >= o.nodes) throw_failure(Kind::usage, "--node-rank {} of --nnodes {}: nodes are counted from 0", o.node, o.nodes);
  if (o.master_addr.empty())
    throw_failure(Kind::usage, "--nnodes {} needs --master-addr (PET_MASTER_ADDR): where node 0 is reached", o.nodes);
  if (node.secret_file.empty())
    throw_failure(Kind::usage,
                  "launchers on several nodes need COHORT_SECRET_FILE: 32 random bytes, mode 600, the same on every node "
                  "(head -c 32 /dev/urandom > job.secret && chmod 600 job.secret)");
  plan.node = std::move(node);
}

}  // namespace

void plan_placement(LaunchPlan& plan) {
  const LaunchOptions& o = plan.options;
  const bool named = !o.hosts.empty() || !o.host_file.empty() || !o.discovery_script.empty();
  named ? plan_hosts(plan) : void(plan.ranks = count_here(o, plan.host));
  if (o.nodes > 1) plan_node(plan);
  const int most = o.max_workers > 0 ? o.max_workers : plan.ranks;
  if (o.elastic() && (o.min_workers > plan.ranks || plan.ranks > most))
    throw_failure(Kind::usage, "--min-n {}, -n {}, --max-n {}: needs min <= n <= max", o.min_workers, plan.ranks, most);
}

void read_slurm_nodes(LaunchOptions& options, const group::Environment& env) {
  const std::string node = value_of(env, "SLURM_NODEID");
  if (value_of(env, "SLURM_STEP_ID").empty() || node.empty() || options.nodes > 1) return;
  std::string list = value_of(env, "SLURM_STEP_NODELIST");
  if (list.empty()) list = value_of(env, "SLURM_JOB_NODELIST");
  if (list.empty())
    throw_failure(Kind::usage, "SLURM_NODEID={}, but neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is set", printable(node));
  const auto nodes = group::parse_nodelist(list);
  const auto tasks = value_of(env, "SLURM_STEP_TASKS_PER_NODE");
  if (!tasks.empty()) {
    const auto counts = group::parse_tasks_per_node(tasks);
    if (std::any_of(counts.begin(), counts.end(), [](int n) { return n != 1; }))
      throw_failure(Kind::usage,
                    "SLURM_STEP_TASKS_PER_NODE={}: one agent a node is enough, srun --ntasks-per-node=1 cohort agent -n RANKS ..; "
                    "or one task a rank, srun ./program",
                    printable(tasks));
  }
  options.nodes = static_cast<int>(nodes.size());
  options.node = static_cast<int>(parse_int(node));
  if (options.master_addr.empty()) options.master_addr = nodes.front();
  const std::string id = value_of(env, "SLURM_JOB_ID");
  if (options.job.empty() && !id.empty()) options.job = fmt::format("slurm-{}.{}", id, value_of(env, "SLURM_STEP_ID"));
  // Two jobs that share a node must not meet: the number of the job chooses among ports that no system hands out by itself.
  constexpr int kFirstPort = 20000, kPorts = 6000;
  if (options.master_port == 0 && !id.empty()) options.master_port = kFirstPort + static_cast<int>(parse_int(id) % kPorts) * 2;
}

}  // namespace cohort::launch
