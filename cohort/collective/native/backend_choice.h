// `backend: auto`: every backend that is here reduces a few sizes, and the fastest is taken. All ranks choose alike: a time is that of the
// slowest rank. The native backend stays unless another is clearly faster: it alone gives the same bits and needs no second set of
// connections. Threads: pure functions, any. Failure: none.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cohort::collective {

inline constexpr std::array<std::size_t, 3> kAutoBytes{std::size_t{64} << 10, std::size_t{4} << 20, std::size_t{64} << 20};
inline constexpr double kAutoGain = 1.1;  // below that, what is measured in a second differs from one start to the next

struct BackendTimes {
  std::string name;             // "native" comes first
  std::vector<double> seconds;  // of an all_reduce of kAutoBytes[i]; fewer when the next would take too long, none when it cannot be used
  std::string why;              // why it was not measured
  bool failed = false;          // it was tried and did not work
};

// The native backend unless another is faster by kAutoGain in the geometric mean over the sizes both have.
const BackendTimes& choose_backend(std::span<const BackendTimes> measured);
// "backend: auto takes native: native reduces 64 KiB in 36.2 us, 4 MiB in 1.5 ms; gloo reduces 64 KiB in 210 us; mpi not tried: ..."
std::string choice_text(std::span<const BackendTimes> measured);

}  // namespace cohort::collective
