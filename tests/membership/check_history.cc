// check_history file.jsonl ...: all lines of all files are one history. Exit status 0: every promise kept; 1: not; 2: cannot be read.
#include <cstdio>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/elastic/history.h"

int main(int count, char** files) {
  using namespace cohort;
  if (count < 2) {
    std::fputs("check_history file.jsonl ...: checks the histories of workers (docs/reliability.md)\n", stderr);
    return 2;
  }
  try {
    std::vector<elastic::HistoryLine> lines;
    for (int i = 1; i < count; ++i)
      for (auto& line : elastic::decode_history(read_file(files[i], 4_GiB), files[i])) lines.push_back(std::move(line));
    const auto violations = elastic::judge(lines);
    for (const auto& v : violations) std::printf("%s broken: %s\n", v.promise.c_str(), v.what.c_str());
    if (violations.empty()) std::printf("%zu lines, P1, P2, P3 and P6 kept\n", lines.size());
    return violations.empty() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "check_history: %s\n", e.what());
    return 2;
  }
}
