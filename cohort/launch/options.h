// What `cohort run` was asked to do, from its command line: one table of options, in our words and in torchrun's and horovodrun's.
// Everything here is pure. Dashes and underscores are the same (--nproc_per_node), a value may follow as its own word or after '='.
// Owner: values. Threads: any. Failure: Kind::usage naming the option, the nearest known one, or why this launcher cannot do it.
// To add an option: one row in option_table.cc.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/elastic/elastic_types.h"
#include "cohort/group/rank_info.h"

namespace cohort::launch {

// Where stdout or stderr of a rank goes.
enum class Sink : unsigned char { screen, file, both };

enum class Stdin : unsigned char { first_rank, none };

struct LaunchOptions {
  bool help = false;
  std::string ranks = "1";  // a number, "auto" (one per core) or "gpu" (one per GPU)
  std::vector<std::string> command;
  bool module = false;     // the command is a Python module
  bool no_python = false;  // run a .py file itself even when it is not executable
  std::string python;      // the interpreter of scripts and modules; empty: find_program() says which

  std::string output;                  // folder of rank.N/stdout and rank.N/stderr; empty: no files
  std::map<int, int> redirects, tees;  // rank (-1: all) to a mask, 1 stdout, 2 stderr: file only, file and screen
  std::set<int> shown;                 // ranks whose output is on the screen; empty: all
  bool prefix = true;
  std::string color = "auto";  // auto, always, never
  bool quiet = false;
  bool verbose = false;
  std::string log_level;                         // COHORT_LOG of the ranks
  std::map<std::string, std::string> variables;  // further ones of the ranks: COHORT_BACKEND, COHORT_DETERMINISTIC
  int streams = -1;                              // COHORT_STREAMS of the ranks; -1: as it is around us

  Seconds start_timeout{30};
  Seconds grace{1};        // between SIGTERM and SIGKILL when a rank has failed
  Seconds stop_grace{30};  // between a forwarded signal and SIGKILL
  Seconds timeout{1e9};    // of the whole job

  std::string bind = "auto";  // none, core, numa, auto
  int threads = 0;            // OMP_NUM_THREADS; 0: cores / ranks
  Stdin input = Stdin::first_rank;
  std::string job;  // TORCHELASTIC_RUN_ID; empty: random
  std::string role = "default";
  int master_port = 0;  // 0: a free one

  // Several hosts (placement.h makes a plan of these): at most one of the first three, or the four after them.
  std::string hosts, host_file, discovery_script;
  int slots_per_host = 1;  // of hosts that are named without a number
  int nodes = 1;           // launchers that somebody else starts, one a node
  int node = -1;           // which of them this is; -1: not said
  std::string master_addr;
  bool ranks_given = false;
  std::string ssh;           // the remote shell, with its options; empty: COHORT_SSH, else ssh
  int ssh_port = 0;          // 0: its own default
  std::string ssh_identity;  // file of a key; empty: its own default
  std::string agent;         // path of cohort on the other hosts; empty: as here
  bool tls = false;          // connections of launcher and ranks go through TLS
  std::string interface;     // through which ranks and launcher are reached; empty: found out

  // Elastic: workers come and go while the job runs. 0: it has its ranks from the beginning to the end.
  int min_workers = 0;            // fewer than these wait for more
  int max_workers = 0;            // more than these wait as standbys; 0: as many as are started
  int respawns = -1;              // lost workers that are replaced, in all; -1: ten times as many as are started
  Seconds lost_after{2};          // a worker without heartbeats for so long is taken for lost
  Seconds settle_limit{120};      // for all to have an epoch's first state
  Seconds wait_limit{600};        // below min_workers, before the job gives up
  Seconds host_cool_down{10};     // a host that was lost is not used for so long; doubles
  Seconds discovery_interval{1};  // between two runs of the discovery script
  elastic::Quorum quorum = elastic::Quorum::minimum;
  elastic::HeldState held_state = elastic::HeldState::whole;  // of a program of the user's own
  bool supervised = false;  // their coordinator is a process of its own, and is started again when it dies
  bool elastic() const { return min_workers > 0; }

  Sink sink_of(int rank, int stream) const;  // stream 1 or 2
};

// What an empty command line means in this environment: PET_* of torchrun's operators, COHORT_TLS, COHORT_START_TIMEOUT.
LaunchOptions default_options(const group::Environment& environment);
LaunchOptions parse_launch_options(const std::vector<std::string>& args, const group::Environment& environment);
void check_options(const LaunchOptions& options);  // whether they go together
std::string launch_help();

}  // namespace cohort::launch
