// A pipe that wakes a rank out of poll(2), also from another process of its host: unlike an eventfd it can be opened through
// /proc/<pid>/fd/<n>, as shared memory is (base/segment.h). The bytes have no meaning.
// Owner: the rank that sleeps; peers have a descriptor of their own. Threads: any. Failure: Kind::system.
#pragma once
#include <cstdint>

#include "cohort/base/fd.h"

namespace cohort::net {

Fd make_wake_pipe();
// A peer's. Kind::system when it cannot be opened or is no pipe; the peer's memory could be mapped, so it is on this host.
Fd open_wake_pipe(std::int64_t pid, int fd);
void notify_wake_pipe(int fd) noexcept;
void drain_wake_pipe(int fd) noexcept;

}  // namespace cohort::net
