// Exit statuses of `cohort` and of what it starts, as shells and timeout(1) have them.
#pragma once

namespace cohort::launch {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTimeout = 124;        // as timeout(1) has it
inline constexpr int kExitNotExecutable = 126;  // as shells have it
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;  // a program killed by signal n gives 128 + n

}  // namespace cohort::launch
