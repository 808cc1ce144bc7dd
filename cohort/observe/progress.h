// How far a run is, on one line of a terminal:
//   epoch 2/10  34%|███▍      | 320/938 [00:10<00:19, 32.1 k samples/s, loss=0.412]
// redrawn in place, at most ten times a second, as wide as the window is at that moment. In a pipe, a file or a CI log the same facts come
// as plain lines, one every `line_every`:
//   epoch 2/10  34% 320/938 [00:10<00:19, 32.1 k samples/s, loss=0.412]
// The formatting is pure; clock, output and width come in from outside, so tests need neither a terminal nor time.
// Owner: rank 0. Threads: one at a time. Failure: none; a closed stderr loses the line.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::observe {

struct ProgressState {
  std::string label;                                     // "epoch 2/10"
  std::uint64_t done = 0;                                // steps
  std::uint64_t total = 0;                               // 0: unknown, then there is no bar and no estimate
  double elapsed = 0;                                    // seconds
  double rate = 0;                                       // units a second; not shown when it is 0 or not finite
  std::string unit = "samples";                          // of the rate
  double steps_per_second = 0;                           // what the estimate of the time left uses
  std::vector<std::pair<std::string, double>> values{};  // "loss=0.412"
};

std::string format_clock(double seconds);                                     // "00:10", "1:02:03"; "?" when it is no time
std::string format_rate(double rate, std::string_view unit);                  // "32.1 k samples/s"
std::string format_bar(double share, std::size_t width, bool ascii = false);  // eighths of a column: "███▍      "

struct ProgressStyle {
  std::size_t width = 80;
  bool bar = true;     // false: a plain line, as long as it needs to be
  bool color = false;  // the bar only
  bool ascii = false;  // for terminals without UTF-8
};
std::string format_progress(const ProgressState& state, const ProgressStyle& look);

struct ProgressOptions {
  int fd = 2;                 // asked whether it is a terminal, and how wide
  Seconds redraw_every{0.1};  // on a terminal
  Seconds line_every{10};     // elsewhere
  bool ascii = false;
  std::function<double()> clock{};                // seconds that only rise; the steady clock when empty
  std::function<void(std::string_view)> write{};  // to fd when empty
  std::function<std::size_t()> width{};           // columns; 0: no terminal. Asks fd when empty
};

class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // units_per_step: what one step is worth in the unit of the rate (the batch over all ranks).
  void start(std::string label, std::uint64_t total, double units_per_step = 1, std::string unit = "samples");
  // Draws only when it is time to; otherwise it costs one reading of the clock.
  void update(std::uint64_t done, std::vector<std::pair<std::string, double>> values = {});
  void finish();  // draws the last state whatever the time, and ends the line
  void clear();   // takes the bar off the line, for output that belongs above it; the next update draws it again

 private:
  void draw(double now);
  void put(std::string_view text);

  ProgressOptions options_;
  bool running_ = false;
  bool on_line_ = false;  // a bar stands on the present line
  double started_ = 0, drawn_ = 0;
  double units_per_step_ = 1;
  ProgressState state_;
  double mark_time_ = 0;  // the rate is smoothed between drawings
  std::uint64_t mark_done_ = 0;
  double smooth_ = 0;
};

std::size_t terminal_columns(int fd);  // 0 when it is no terminal; 80 when it does not say

}  // namespace cohort::observe
