#include "cohort/base/core_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace cohort {

CoreWait::CoreWait() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

double CoreWait::seconds() const {
  char text[96];  // nanoseconds on a core, nanoseconds without one, turns
  const auto size = file_ ? ::pread(file_.get(), text, sizeof text - 1, 0) : 0;
  if (size <= 0) return 0;
  text[size] = 0;
  char* next = nullptr;
  std::strtoull(text, &next, 10);
  return 1e-9 * static_cast<double>(std::strtoull(next, nullptr, 10));
}

}  // namespace cohort
