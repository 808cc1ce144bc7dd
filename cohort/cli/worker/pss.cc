#include "cohort/cli/worker/pss.h"

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::cli::worker {

double pss_bytes() {
  const std::string text = read_file("/proc/self/smaps_rollup");
  for (const auto line : split(text, '\n'))
    if (line.starts_with("Pss:")) return static_cast<double>(parse_int(trim(line.substr(4, line.find("kB") - 4)))) * 1024;
  throw_failure(Kind::system, "/proc/self/smaps_rollup has no line Pss");
}

}  // namespace cohort::cli::worker
