// How ranks ended, in words and as exit statuses. Pure.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::cli {

std::string signal_name(int number);      // "SIGKILL"
std::string describe_status(int status);  // of waitpid: "exit status 3", "killed by SIGSEGV (core dumped)"
int exit_code_of(int status);             // 3, or 128 + the signal

// The last lines a rank wrote to stderr: what usually says why. Bounded in lines and bytes.
class Tail {
 public:
  void add(std::string_view bytes);
  std::vector<std::string> lines() const;

 private:
  std::deque<std::string> lines_{""};  // the last one is still open
};

struct FirstFailure {
  int rank = 0;
  int pid = 0;
  int status = 0;
  Seconds after{0};
  int others_stopped = 0;  // ranks that were still running
  std::vector<std::string> last_words{};
  std::string host{};  // empty: this one
};
std::string tell(const FirstFailure& failure);

// The rank over whose loss a rank failed, by its own last words ("rank 2 died"); -1: it says nothing of the kind.
int blames(const std::vector<std::string>& last_words, int rank);

}  // namespace cohort::cli
