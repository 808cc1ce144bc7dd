#include "cohort/base/error.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace cohort {
namespace {

// Which limit was met and how it is raised, where the system's own words leave that open.
std::string limit_behind(int error_number) {
  rlimit limit{};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    return fmt::format(" (a process may have {} here: raise it with `ulimit -n`)", limit.rlim_cur);
  if (error_number == ENFILE) return " (on the whole machine: raise fs.file-max)";
  if (error_number == EAGAIN) return " (processes and threads are limited: see `ulimit -u` and the container's pids limit)";
  return {};
}

}  // namespace

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::usage: return "usage";
    case Kind::peer_lost: return "peer_lost";
    case Kind::timeout: return "timeout";
    case Kind::aborted: return "aborted";
    case Kind::corrupt: return "corrupt";
    case Kind::system: return "system";
    case Kind::bug: return "bug";
  }
  return "unknown";
}

void throw_system(std::string_view what) { throw_system(what, errno); }

void throw_system(std::string_view what, int error_number) {
  throw Failure{
      {Kind::system, fmt::format("{}: {}{}", what, std::generic_category().message(error_number), limit_behind(error_number)), kNoRank}};
}

}  // namespace cohort
