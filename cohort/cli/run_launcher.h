// The launcher: the process of `cohort run` that holds the ranks. It starts them, carries their output, lets them meet, and sees to it that
// they all end when one fails, when it is told to, or when the front process (run_front.h) is gone.
// Threads: the main one; the coordinator has its own. Failure: exit statuses and lines on stderr; see docs/launching.md.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/cli/run_binding.h"
#include "cohort/cli/run_options.h"
#include "cohort/cli/run_program.h"
#include "cohort/cli/run_signals.h"
#include "cohort/group/hosts.h"

namespace cohort::cli {

// This launcher's part when one is started on every node by somebody else (srun, a Kubernetes Job): node 0 holds the coordinator.
struct NodePlan {
  int nodes = 1;
  int node = 0;
  std::string master_addr;  // of node 0, as the others reach it
  int master_port = 0;      // the program's own; the coordinator's is the next one
  std::string secret_file;
  std::string job;
};

struct LaunchPlan {
  RunOptions options;
  int ranks = 1;                        // of the whole job; of every node where there is a NodePlan
  std::vector<group::HostShare> hosts;  // several hosts, or another one: agents are started there; empty: all ranks are ours
  group::Hosts pool;                    // elastic: all hosts there are, with their slots
  std::optional<NodePlan> node;
  Program program;
  group::Environment environment;
  HostShape host;
  Fd front;        // readable (at its end) once the front process is gone
  int input = -1;  // of rank 0; -1: nothing to read
};

int launch(LaunchPlan plan, Signals& signals);

}  // namespace cohort::cli
