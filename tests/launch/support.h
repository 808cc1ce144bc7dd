// Real processes for the tests of this folder: started, watched, and never outliving the test.
// A Started process dies with the test program (PR_SET_PDEATHSIG), and everything it starts has a variable in its environment by which
// marked_processes() finds what is left of it, in whatever session or under whatever parent.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"

namespace cohort::launch {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

// Time limits hold at factor 1 on an idle machine; COHORT_TEST_SLOWDOWN stretches them.
Seconds stretched(Seconds limit);

struct Ended {
  int code = -1;  // exit status, or 128 + signal
  std::string out, err;
  Seconds took{0};
};

class Started {
 public:
  // PATH is searched for words[0]; variables are added to a small clean environment.
  explicit Started(const Words& words, const Variables& variables = {}, const std::string& input = "");
  // The same on a terminal of its own: out() is what the screen shows, type() what somebody types.
  static std::unique_ptr<Started> on_terminal(const Words& words, const Variables& variables = {});
  void type(const std::string& text) const;
  ~Started();  // kills it, and all its marked_processes()
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  void signal(int number) const;
  bool wait_for_text(const std::string& text, Seconds limit);  // in stdout or stderr; false when it ended or the limit passed
  bool wait_for_more(Seconds limit);                           // any further byte
  bool wait_for_state(char state, Seconds limit) const;        // as /proc/<pid>/stat has it: 'T' is stopped
  Ended wait(Seconds limit = Seconds{60});                     // kills it when the limit passes
  std::vector<pid_t> marked_processes() const;                 // without zombies
  bool all_gone_within(Seconds limit) const;

 private:
  Started() = default;
  bool read_some(Deadline deadline);  // false at the end of both streams, or the deadline

  std::string mark_;
  pid_t pid_ = -1;
  Fd out_fd_, err_fd_;
  std::string out_, err_;
  Clock::time_point began_ = Clock::now();
};

Ended run(const Words& words, const Variables& variables = {}, const std::string& input = "");
Ended cohort_run(const Words& words, const Variables& variables = {}, const std::string& input = "");
Words cohort_run_words(const Words& words);

std::vector<pid_t> children_of(pid_t pid);
std::vector<std::string> lines_of(const std::string& text);
std::vector<std::string> sorted_lines_of(const std::string& text);

}  // namespace cohort::launch
