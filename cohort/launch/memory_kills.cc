#include "cohort/launch/memory_kills.h"

#include <sys/wait.h>

#include <csignal>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kMostBytes = 256 << 10;
constexpr std::string_view kName = "oom_kill ";

}  // namespace

MemoryKills::MemoryKills(std::string counters) : counters_(std::move(counters)), known_(count()) {}

std::int64_t MemoryKills::count() const {
  try {
    for (const auto line : split(read_file(counters_, kMostBytes), '\n'))
      if (line.starts_with(kName)) return parse_int(line.substr(kName.size()));
  } catch (const Failure&) {  // no /proc, or another kernel
  }
  return -1;
}

bool MemoryKills::explains(int status) {
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL || known_ < 0 || count() <= known_) return false;
  ++known_;
  return true;
}

}  // namespace cohort::launch
