// A discovery script that is asked again and again while an elastic job runs: hosts come and go with its answers. A script that fails, says
// nonsense or does not end leaves the last answer as it was, which is said once, and again when it is well.
// Owner: the launcher. Threads: one. Failure: none but of ask_once; lines for people (take_notices).
#pragma once
#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/cli/run_child.h"
#include "cohort/group/hosts.h"
#include "cohort/group/place.h"

namespace cohort::cli {

struct DiscoveryPlan {
  std::string command;  // a shell reads it
  Seconds every{1};
  Seconds answer_limit{10};  // for one answer
  int slots_per_host = 1;
  group::Hosts known;  // the first answer
  group::Environment environment;
  sigset_t signal_mask{};
};

class Discovery {
 public:
  explicit Discovery(DiscoveryPlan plan);
  static group::Hosts ask_once(DiscoveryPlan plan);  // waits for the answer; Kind::usage when there is none
  void add_polls(std::vector<pollfd>& fds) const;
  void move();                               // starts it when that is due, reads what it prints
  void ended(pid_t pid, int status);         // a child of this process; another one's is passed over
  std::optional<group::Hosts> take_hosts();  // an answer that is not the last one
  std::vector<std::string> take_notices();
  Deadline next_look() const;

 private:
  void ask();
  void read_answer();
  void conclude();
  void fail(const std::string& why);

  const DiscoveryPlan plan_;
  const Program program_;
  group::Hosts known_;
  bool fresh_ = false;  // known_ was not taken yet
  Child script_;
  std::string answer_, complaint_;  // of the script under way
  std::optional<int> status_;
  Deadline due_, give_up_;  // the next question; the end of our patience with this one
  bool under_way_ = false, failing_ = false;
  std::string why_;  // of the last failure
  std::vector<std::string> notices_;
};

}  // namespace cohort::cli
