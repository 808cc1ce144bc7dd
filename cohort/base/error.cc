#include "cohort/base/error.h"

#include <cerrno>
#include <system_error>

namespace cohort {

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
  throw Failure{{Kind::system, fmt::format("{}: {}", what, std::generic_category().message(error_number)), kNoRank}};
}

}  // namespace cohort
