// A discovery script that is run again and again while an elastic job runs: hosts join and leave with its answers. A script that fails,
// prints nonsense or does not end leaves the last answer as it was, which is reported once, and again when it works. Owner: the launcher.
// Threads: one. Failure: none but of ask_once; messages for people (take_messages).
#pragma once
#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/group/hosts.h"
#include "cohort/group/rank_info.h"
#include "cohort/launch/child.h"

namespace cohort::launch {

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
  void ended(pid_t pid, int status);         // a child of this process; another one's is ignored
  std::optional<group::Hosts> take_hosts();  // an answer that is not the last one
  std::vector<std::string> take_messages();
  Deadline next_look() const;

 private:
  void ask();
  void read_answer();
  void finish();
  void fail(const std::string& why);

  const DiscoveryPlan plan_;
  const Program program_;
  group::Hosts known_;
  bool fresh_ = false;  // known_ was not taken yet
  Child script_;
  std::string answer_, error_output_;  // of the running script
  std::optional<int> status_;
  Deadline due_, answer_by_;  // the next run; the end of this one
  bool running_ = false, failing_ = false;
  std::string why_;  // of the last failure
  std::vector<std::string> messages_;
};

}  // namespace cohort::launch
