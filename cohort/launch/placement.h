// From options and variables to where the ranks run: all on this host, on hosts that get agents, or as one node of several that somebody
// else starts. Reads host files and runs discovery scripts; the rest is pure. Failure: Kind::usage, with the source and line of a mistake.
#pragma once
#include "cohort/launch/launcher.h"

namespace cohort::launch {

// Fills plan.ranks, plan.hosts and plan.node from plan.options, plan.environment and plan.host.
void plan_placement(LaunchPlan& plan);

// What Slurm says about one launcher per node, as options of ours; nothing outside of a step, and what is given already stays.
void read_slurm_nodes(LaunchOptions& options, const group::Environment& environment);

}  // namespace cohort::launch
