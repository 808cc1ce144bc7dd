// cohort agent: a launcher's part on one host, started there by ssh or by a cluster's own launcher.
#include <fmt/format.h>

#include <string>

#include "cohort/base/error.h"
#include "cohort/cli/cli.h"
#include "cohort/launch/agent.h"
#include "cohort/launch/foreground.h"
#include "cohort/launch/placement.h"

namespace cohort::cli {
namespace {

constexpr const char* kHelp =
    "cohort agent: one launcher per node of a job, started there by somebody else\n\n"
    "usage: srun --ntasks-per-node=1 cohort agent [options] [--] program [arguments]\n\n"
    "  srun --ntasks-per-node=1 cohort agent -n 4 ./train      Slurm: nodes, this node and the first one's name from SLURM_*\n"
    "  cohort agent -n 4 ./train                               Kubernetes: from PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, "
    "PET_MASTER_PORT\n"
    "  cohort agent --nnodes 2 --node-rank 1 --master-addr node0 -n 4 ./train     by hand\n\n"
    "Every node starts its own -n ranks. Node 0 has the coordinator, at the port after MASTER_PORT. COHORT_SECRET_FILE names the job's "
    "secret\n"
    "on every node: 32 random bytes, mode 600. All options are those of `cohort run`, which starts `cohort agent --stdio` itself on hosts "
    "that\n"
    "it reaches by ssh.\n";

int run(int argc, char** argv) {
  const std::vector<std::string> args{argv + 1, argv + argc};
  const group::Environment environment = group::read_environment();
  if (args.size() == 1 && args[0] == "--stdio")
    return launch::run_with_foreground("cohort agent", [&](Fd foreground, launch::Signals& signals) {
      return launch::run_agent(environment, std::move(foreground), signals);
    });
  launch::LaunchPlan plan;
  plan.environment = environment;
  plan.options = launch::parse_launch_options(args, plan.environment);
  if (plan.options.help) return fmt::print("{}", kHelp), 0;
  launch::read_slurm_nodes(plan.options, plan.environment);
  if (plan.options.nodes == 1 && plan.options.node < 0)
    throw_failure(Kind::usage,
                  "which node of how many is this? Neither SLURM_NODEID nor PET_NNODES is set; give --nnodes, --node-rank and "
                  "--master-addr, or use `cohort run`");
  return launch::run_job(std::move(plan));
}

}  // namespace

Command agent_command() { return {"agent", "one launcher per node, under Slurm or Kubernetes; `cohort run -H` starts it by itself", run}; }

}  // namespace cohort::cli
