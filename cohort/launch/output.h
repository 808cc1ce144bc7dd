// Where the output of ranks goes: to the screen, to the files of --output, and the last lines of stderr into memory for the report.
// Owner: the launcher. Threads: one. Failure: Kind::system when a file cannot be made before the job begins; later that is a line, and so
// is a file that can no longer be written. Output that should go there alone is on the screen then.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/launch/failure_report.h"
#include "cohort/launch/options.h"
#include "cohort/launch/screen.h"

namespace cohort::launch {

// Who receives what ranks write: the launcher's Output, or an agent that sends it there.
class RankSink {
 public:
  virtual ~RankSink() = default;
  virtual void write(int rank, int stream, std::string_view bytes, Clock::time_point now) = 0;  // stream 1 or 2
  virtual void finish(int rank, int stream) = 0;                                                // no more of it
};

class Output : public RankSink {
 public:
  Output(const LaunchOptions& options, Screen& screen) : options_(options), screen_(screen) {}
  void open_files(int first, int ranks);
  void open_more();  // for one more rank, behind the last, where the files can be made
  void write(int rank, int stream, std::string_view bytes, Clock::time_point now) override;
  void finish(int rank, int stream) override { screen_.finish(rank, stream); }
  std::vector<std::string> last_lines(int rank) const;

 private:
  struct RankOutput {
    std::array<Fd, 2> files;  // stdout, stderr of --output
    StderrTail last_lines;
  };
  void open_files_of(int rank, RankOutput& rank_output) const;
  RankOutput& rank_output(int rank) { return rank_outputs_.at(static_cast<std::size_t>(rank - first_)); }

  const LaunchOptions& options_;
  Screen& screen_;
  int first_ = 0;
  std::vector<RankOutput> rank_outputs_;
  bool cannot_open_ = false;  // the files of the last rank that came later; it was said
};

}  // namespace cohort::launch
