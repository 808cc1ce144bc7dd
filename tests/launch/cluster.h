// Hosts for tests: network namespaces h0, h1 .. joined by a bridge that has a namespace of its own. Each is kept alive by one process, the
// server of launch_shell there, which dies with the test program; the kernel removes namespace and links with it, so that nothing stays
// behind however a test ends. Needs root and the command ip; where namespaces cannot be had the constructor throws with a sentence.
#pragma once
#include <string>
#include <vector>

#include "support.h"

namespace cohort::launch {

class Cluster {
 public:
  explicit Cluster(int hosts);  // h0 is where the launcher runs; h1 to h<hosts> take part
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Words on(int host, const Words& words) const;                                                    // the command that runs these there
  Words run_words(const Words& words) const;                                                       // `cohort run` with these on h0
  Variables variables(const Variables& more = {}) const;                                           // with launch_shell as the remote shell
  Ended run(const Words& words, const Variables& more = {}, const std::string& input = "") const;  // run_words, to the end
  static std::string address(int host);                                                            // 10.66.0.1 ..
  std::vector<pid_t> processes_on(int host) const;                                                 // all but launch_shell's own
  std::vector<pid_t> processes() const;                                                            // on all of them
  bool empty_within(Seconds limit) const;

 private:
  pid_t start_holder(const std::string& name) const;
  std::string folder_;
  pid_t bridge_ = -1;
  std::vector<pid_t> holders_;
};

std::string command_line(pid_t pid);  // words separated by spaces
pid_t parent_of(pid_t pid);

}  // namespace cohort::launch
