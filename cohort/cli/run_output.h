// Where the bytes that ranks write go: to the screen, to the files of --output, and the last lines of stderr into memory for the report.
// Owner: the launcher. Threads: one. Failure: Kind::system when a file cannot be made; one that can no longer be written is given up with a
// line.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/cli/run_options.h"
#include "cohort/cli/run_report.h"
#include "cohort/cli/run_screen.h"

namespace cohort::cli {

// Whoever takes what ranks write: the launcher's Output, or an agent on its way to it.
class RankSink {
 public:
  virtual ~RankSink() = default;
  virtual void write(int rank, int stream, std::string_view bytes, Clock::time_point now) = 0;  // stream 1 or 2
  virtual void finish(int rank, int stream) = 0;                                                // no more of it
};

class Output : public RankSink {
 public:
  Output(const RunOptions& options, Screen& screen) : options_(options), screen_(screen) {}
  void open_files(int first, int ranks);
  void open_more();  // for one more rank, behind the last
  void write(int rank, int stream, std::string_view bytes, Clock::time_point now) override;
  void finish(int rank, int stream) override { screen_.finish(rank, stream); }
  std::vector<std::string> last_words(int rank) const;

 private:
  struct Desk {
    std::array<Fd, 2> files;  // stdout, stderr of --output
    Tail last_words;
  };
  void open_files_of(int rank, Desk& desk) const;
  Desk& desk(int rank) { return desks_.at(static_cast<std::size_t>(rank - first_)); }

  const RunOptions& options_;
  Screen& screen_;
  int first_ = 0;
  std::vector<Desk> desks_;
};

}  // namespace cohort::cli
