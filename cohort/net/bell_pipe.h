// A pipe that wakes a rank out of poll(2), also from another process of its host: unlike an eventfd it can be opened through
// /proc/<pid>/fd/<n>, as shared memory is (base/segment.h). What is written means nothing; that it is there does.
// Owner: the rank that sleeps; peers hold a descriptor of their own. Threads: any. Failure: Kind::system.
#pragma once
#include <cstdint>

#include "cohort/base/fd.h"

namespace cohort::net {

Fd make_bell();
// A peer's. Kind::system when it cannot be opened or is no pipe: its memory could be mapped, so this is no matter of hosts.
Fd open_bell(std::int64_t pid, int fd);
void ring_bell(int fd) noexcept;
void hush_bell(int fd) noexcept;

}  // namespace cohort::net
