// Memory of this process alone, in huge pages where the system gives them: less to translate when the kernel copies or pins it.
// Owner: whoever holds the pointer. Threads: any. Failure: Kind::system.
#pragma once
#include <cstddef>
#include <memory>

namespace cohort {

// Zeroed, resident, on a 2 MiB boundary.
std::shared_ptr<void> huge_pages(std::size_t bytes);

}  // namespace cohort
