// The launcher: the process of `cohort run` whose children the ranks are. It starts them, forwards their output and the signals it gets,
// runs the rendezvous, and ends them all when one fails, when it is told to, or when the foreground process (foreground.h) is gone.
// Threads: the main one; the coordinator has its own. Failure: exit statuses and lines on stderr; see docs/launching.md.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/group/hosts.h"
#include "cohort/launch/binding.h"
#include "cohort/launch/options.h"
#include "cohort/launch/program.h"
#include "cohort/launch/signals.h"

namespace cohort::launch {

// This launcher's part when one is started on every node by somebody else (srun, a Kubernetes Job): node 0 has the coordinator.
struct NodePlan {
  int nodes = 1;
  int node = 0;
  std::string master_addr;  // of node 0, as the others reach it
  int master_port = 0;      // the program's own; the coordinator's is the next one
  std::string secret_file;
  std::string job;
};

// What our own worker programs promise, beyond what any program does; `cohort run` leaves it as it is.
struct WorkerTraits {
  bool sigquit_reports = false;     // ranks answer SIGQUIT and go on
  bool draws_progress_bar = false;  // a rank draws a bar on our terminal
  bool preemptible = false;         // SIGTERM and SIGUSR1 are preemption notices; one that comes while a rank still starts waits
  bool reports_usage = false;       // exit status 2: the rank has said what is wrong with the settings, no report about ranks is needed
  int answer_status = 0;            // a rank that ends with it has answered, as `no`, and has not failed: ours is the same; 0: none
  Seconds recovery_limit{0};  // after a failure ranks end by themselves within this, without SIGTERM: survivors save a lost one's state
  elastic::HeldState held_state = elastic::HeldState::whole;  // elastic: what a worker has of the state
  std::function<std::string()> newest_checkpoint{};  // its path, as the run goes on from when it is started again; "": there is none
};

struct LaunchPlan {
  LaunchOptions options;
  WorkerTraits worker;
  int ranks = 1;                        // of the whole job; of every node where there is a NodePlan
  std::vector<group::HostShare> hosts;  // several hosts, or another one: agents are started there; empty: all ranks are ours
  group::Hosts pool;                    // elastic: all hosts there are, with their slots
  std::optional<NodePlan> node;
  Program program;
  group::Environment environment;
  HostTopology host;
  Fd foreground;   // readable (at its end) once the foreground process is gone
  int input = -1;  // of rank 0; -1: nothing to read

  // Our own workers can save what they have, and nobody restarts this launcher: when it is lost they get a moment for it.
  bool saves_on_launcher_loss() const { return options.elastic() && worker.reports_usage && !options.supervised; }
};

int launch(LaunchPlan plan, Signals& signals);  // in this process, to the end of the job; the exit status

// Finds the program, places the ranks, and runs the job in a launcher process: all of `cohort run`. plan: options, worker, environment.
int run_job(LaunchPlan plan);

}  // namespace cohort::launch
