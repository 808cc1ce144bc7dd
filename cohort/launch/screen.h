// Many ranks on one screen: whole lines, each with its rank in front, stdout and stderr kept apart.
// A line that is not finished is held back until it is, or until its rank has been silent for a moment (a prompt, a progress bar); then it
// stays open, and whoever writes next begins a new line. Carriage returns redraw the rank's own line.
// Pure: text goes in by rank and stream, and comes out as pending bytes of each sink; a Terminal writes them.
// Owner: the launcher's loop. Threads: one. Failure: none.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "cohort/base/deadline.h"

namespace cohort::launch {

struct ScreenStyle {
  bool prefix = true;
  std::array<bool, 2> color{false, false};  // of stdout and stderr
  std::array<bool, 2> over_bar{false,
                               false};  // a rank draws a bar on that terminal by itself: a line takes its place, the bar is drawn again
  bool one_sink = false;                // both streams are the same file or terminal: one order of lines for both
};

class Screen {
 public:
  static constexpr auto kHold = std::chrono::milliseconds(100);  // an unfinished line is shown after this
  explicit Screen(ScreenStyle style) : style_(style) {}

  void write(int rank, int stream, std::string_view bytes, Clock::time_point now);  // stream 1 or 2
  void finish(int rank, int stream);                                                // no more of it: show what was held
  void say(std::string_view text);                                                  // our own lines, to stderr
  void show_idle(Clock::time_point now);
  Deadline next_idle() const;
  void finish_all();                                                         // the end: close the last open line
  void name(int rank, std::string text) { names_[rank] = std::move(text); }  // in front of its lines, instead of its number

  std::string& pending(int stream) { return sinks_[sink_of(stream)].out; }  // the writer takes from its beginning

 private:
  using Source = std::pair<int, int>;  // rank, stream
  struct Held {
    std::string text;
    Clock::time_point since;
  };
  struct Output {
    std::string out;
    Source owner{-1, 0};    // whose line is open; -1: none
    bool returned = false;  // the open line was ended by a carriage return
  };
  std::size_t sink_of(int stream) const { return style_.one_sink ? 0 : static_cast<std::size_t>(stream - 1); }
  std::string_view erased(int stream) const { return style_.over_bar[static_cast<std::size_t>(stream - 1)] ? "\r\033[K" : ""; }
  std::string prefix_of(Source source) const;
  void emit(Source source, std::string_view text);
  void emit_piece(Output& sink, Source source, std::string_view piece);

  const ScreenStyle style_;
  std::map<int, std::string> names_;
  std::map<Source, Held> held_;
  std::array<Output, 2> sinks_;
};

}  // namespace cohort::launch
