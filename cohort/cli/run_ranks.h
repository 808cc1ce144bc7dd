// The ranks of a job as the launcher sees them: processes, the two streams of each, and their files.
// Owner: the launcher. Threads: one. Failure: Kind::system when starting; a file that can no longer be written is given up with a line.
#pragma once
#include <poll.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cli/run_child.h"
#include "cohort/cli/run_options.h"
#include "cohort/cli/run_report.h"
#include "cohort/cli/run_screen.h"

namespace cohort::cli {

struct RankState {
  Child child;
  std::optional<int> status;  // of waitpid, once it has ended
  Tail last_words;
  std::array<Fd, 2> files;  // stdout, stderr of --output
  bool running() const { return !status; }
};

class Ranks {
 public:
  Ranks(const RunOptions& options, Screen& screen) : options_(options), screen_(screen) {}

  void start(const std::vector<ChildPlan>& plans);  // all or none: what was started is killed when a later one cannot be
  int size() const { return static_cast<int>(ranks_.size()); }
  const RankState& operator[](int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  int running() const;

  struct Ended {
    int rank;
    int status;
  };
  std::vector<Ended> reap();      // every child that has ended, orphans of the ranks included (those only vanish)
  void signal(int number) const;  // to the process group of every rank that runs

  void add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const;
  void read_output(Clock::time_point now, bool with_stdout, bool with_stderr);  // whatever is there, without waiting
  bool anything_open() const;

 private:
  void open_files(int rank, RankState& state) const;
  void read_stream(int rank, int stream, Clock::time_point now);
  void deliver(int rank, int stream, std::string_view bytes, Clock::time_point now);

  const RunOptions& options_;
  Screen& screen_;
  std::vector<RankState> ranks_;
};

}  // namespace cohort::cli
