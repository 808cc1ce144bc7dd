// `comm: auto`: every engine that is here reduces a few sizes, and the fastest is taken. All ranks choose alike: a time is that of the
// slowest rank. The own engine stays unless another is clearly faster: it alone gives the same bits and needs no second set of connections.
// Threads: pure functions, any. Failure: none.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cohort::collective {

inline constexpr std::array<std::size_t, 3> kAutoBytes{std::size_t{64} << 10, std::size_t{4} << 20, std::size_t{64} << 20};
inline constexpr double kAutoGain = 1.1;  // below that, what is measured in a second differs from one start to the next

struct EngineTimes {
  std::string name;             // "own" comes first
  std::vector<double> seconds;  // of an all_reduce of kAutoBytes[i]; fewer when the next would take too long, none when it cannot be used
  std::string why;              // why it was not measured
  bool failed = false;          // it was tried and did not work
};

// The own engine unless another is faster by kAutoGain in the geometric mean over the sizes both have.
const EngineTimes& choose_engine(std::span<const EngineTimes> measured);
// "comm: auto takes own: own 64 KiB 36.2 us, 4 MiB 1.5 ms; gloo 64 KiB 210 us, 4 MiB 5.1 ms; mpi not tried: ..."
std::string choice_text(std::span<const EngineTimes> measured);

}  // namespace cohort::collective
