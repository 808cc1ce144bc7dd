// Requests come from anybody on this machine. Whatever the bytes: the head ends at one place however they arrive, and parsing it gives a
// status that can be answered, with a path that starts with a slash and holds no zero byte when that status is 200.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cohort/observe/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto end = cohort::observe::head_end(bytes);
  if (end &&
      (*end > size || cohort::observe::head_end(bytes.substr(0, *end)) != end || cohort::observe::head_end(bytes.substr(0, *end - 1))))
    std::abort();
  const auto head = cohort::observe::parse_head(bytes.substr(0, end.value_or(size)));
  switch (head.status) {
    case 200:
      if (!head.request.path.starts_with('/') || head.request.path.find('\0') != std::string::npos) std::abort();
      break;
    case 400:
    case 403:
    case 405:
    case 413:
    case 505: break;
    default: std::abort();
  }
  return 0;
}
