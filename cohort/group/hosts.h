// Which hosts a job may use, from everything that names them: a command line, a host file, a discovery script's output, Slurm's variables.
//
//   h1:2,h2        -H of mpirun and horovodrun: host[:slots], separated by commas; [::1]:2 for an IPv6 address
//   h1 slots=2     Open MPI's and Horovod's host file, one a line, '#' begins a comment
//   h1:2           MPICH's host file, and what a discovery script prints
//   n[1-3,07],x    Slurm's lists: ranges keep their leading zeros
//
// All pure. A host that is named twice has the slots of both. Owner: values. Threads: any. Failure: Kind::usage naming the source, the line
// and the text; nothing is guessed, and no list grows beyond kMostHosts whatever a range says.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace cohort::group {

inline constexpr int kMostHosts = 4096;
inline constexpr int kMostSlots = 4096;

struct HostSlots {
  std::string name;  // what ssh takes: may be user@host
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};
using Hosts = std::vector<HostSlots>;

// default_slots: of a host without a number.
Hosts parse_host_list(std::string_view text, int default_slots = 1);
Hosts parse_host_file(std::string_view text, std::string_view source, int default_slots = 1);  // source: for messages, "hosts.txt"
Hosts parse_discovery(std::string_view text, std::string_view source, int default_slots = 1);  // an empty list is refused too

std::vector<std::string> parse_nodelist(std::string_view text);  // SLURM_STEP_NODELIST: "gnode[10,20-25],x1"
std::vector<int> parse_tasks_per_node(std::string_view text);    // SLURM_STEP_TASKS_PER_NODE: "2(x3),1"

// The ranks of one host in a job: a block, so that consecutive ranks share a host.
struct HostShare {
  std::string name;
  int first = 0;  // rank
  int ranks = 0;
  bool operator==(const HostShare&) const = default;
};
// Fills slots in order. ranks 0: every slot. Kind::usage when there are too few. Hosts that get no rank are left out.
std::vector<HostShare> share_ranks(const Hosts& hosts, int ranks);

bool names_this_host(std::string_view host);  // localhost, 127.*, ::1, or the name that gethostname() returns

}  // namespace cohort::group
