// How ranks ended, as text and as exit statuses, and which of several failures is the cause. Pure.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::launch {

std::string signal_name(int number);                    // "SIGKILL"
std::string describe_status(int status);                // of waitpid: "exit status 3", "killed by SIGSEGV (core dumped)"
std::string describe_end(int status, bool for_memory);  // the same, and what MemoryKills says about it
int exit_code_of(int status);                           // 3, or 128 + the signal

// The last lines a rank wrote to stderr: what usually says why. Bounded in lines and bytes; without the frames of torch's backtraces.
class StderrTail {
 public:
  void add(std::string_view bytes);
  std::vector<std::string> lines() const;

 private:
  std::deque<std::string> lines_{""};  // the last one is still open
};

struct RankFailure {
  int rank = 0;
  int pid = 0;
  int status = 0;
  Seconds after{0};
  int others_stopped = 0;  // ranks that were still running
  std::vector<std::string> last_lines{};
  std::string host{};  // empty: this one
  std::string name{};  // of a worker, whose rank changes; empty: "rank 2"
  std::string how{};   // describe_end; empty: describe_status
};
std::string failure_text(const RankFailure& failure);

// The rank over whose loss or error a rank failed, by its own last lines ("rank 2 died"); -1: they name none.
int blamed_rank(const std::vector<std::string>& last_lines, int rank);

// The ranks that failed before the others were asked to end, in the order in which that was noticed.
class FailureLog {
 public:
  using LastLines = std::function<std::vector<std::string>(int rank)>;

  void add(RankFailure failure) { failures_.push_back(std::move(failure)); }
  bool empty() const { return failures_.empty(); }
  // The first, or the one over whose loss it failed, if that one is here too: a rank that fails in its own code closes its connections
  // first, and its peers may be quicker to end than it is.
  RankFailure cause(const LastLines& last_lines_of) const;

 private:
  std::vector<RankFailure> failures_;
};

}  // namespace cohort::launch
