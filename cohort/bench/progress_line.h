// One line of progress that rewrites itself on a terminal; silent or plain lines elsewhere. Always on stderr, so that stdout stays data.
// Threads: the main one.
#pragma once
#include <string>

namespace cohort::bench {

class ProgressLine {
 public:
  enum class Elsewhere { silent, lines };  // what to do when stderr is no terminal
  explicit ProgressLine(Elsewhere elsewhere);
  ~ProgressLine();  // leaves a clean line behind
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& what, double share);
  void clear();

 private:
  const bool terminal_;
  const Elsewhere elsewhere_;
  bool dirty_ = false;
};

}  // namespace cohort::bench
