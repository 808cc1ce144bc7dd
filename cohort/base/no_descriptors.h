// For tests: this process is out of descriptors while one of these lives.
#pragma once
#include <fcntl.h>
#include <sys/resource.h>

#include "cohort/base/fd.h"

namespace cohort {

// No descriptor beyond those that are open.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const Fd lowest{open("/dev/null", O_RDONLY | O_CLOEXEC)};
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest.get());
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cohort
