// What the launcher prints: the lines of its ranks and its own, laid out by a Screen and written to stdout and stderr without waiting.
// Owner: the launcher's loop. Threads: one. Failure: none; a stdout that nobody reads any more is reader_gone().
#pragma once
#include <poll.h>

#include <string>
#include <vector>

#include "cohort/launch/launcher.h"
#include "cohort/launch/screen.h"

namespace cohort::launch {

class Terminal {
 public:
  explicit Terminal(const LaunchPlan& plan);
  Screen& screen() { return screen_; }
  void say(const std::string& text) { screen_.say("cohort run: " + text); }
  bool full(int stream);  // so much is unread that no more should be taken from the ranks
  void add_polls(std::vector<pollfd>& fds);
  void write();                                  // whatever goes without waiting
  void flush(Signals& signals, int foreground);  // the rest of it, until one of these says that nobody waits for it
  bool reader_gone() const { return reader_gone_; }

 private:
  void write_stream(int stream);
  bool empty() { return screen_.pending(1).empty() && screen_.pending(2).empty(); }

  Screen screen_;
  bool reader_gone_ = false;
};

}  // namespace cohort::launch
