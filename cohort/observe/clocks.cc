#include "cohort/observe/clocks.h"

#include <array>

#include "cohort/base/deadline.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::observe {
namespace {

constexpr int kPings = 16;  // one that met no queue is enough
constexpr std::uint32_t kTag = 0x7c10c;

void answer(collective::Communicator& comm, Rank peer, const ClockSource& clock) {
  for (int i = 0; i < kPings; ++i) {
    std::array<std::int64_t, 2> times{};
    comm.recv({times.data(), 1, collective::Dtype::i64}, peer, kTag, {.name = "clock ping"});
    times[0] = times[1] = clock.now_ns();
    comm.send({times.data(), times.size(), collective::Dtype::i64}, peer, kTag, {.name = "clock pong"});
  }
}

ClockOffset ask(collective::Communicator& comm, const ClockSource& clock) {
  std::vector<PingPong> samples;
  for (int i = 0; i < kPings; ++i) {
    PingPong p{.t0 = clock.now_ns()};
    std::array<std::int64_t, 2> times{};
    comm.send({&p.t0, 1, collective::Dtype::i64}, Rank{0}, kTag, {.name = "clock ping"});
    comm.recv({times.data(), times.size(), collective::Dtype::i64}, Rank{0}, kTag, {.name = "clock pong"});
    p.t1 = times[0], p.t2 = times[1], p.t3 = clock.now_ns();
    samples.push_back(p);
  }
  return clock_offset(samples).value_or(ClockOffset{});
}

std::uint64_t fnv(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

ClockSource own_clock() {
  return {[] { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count(); },
          std::string(trim(read_file("/proc/sys/kernel/random/boot_id", 64)))};
}

ClockOffset clock_offset_to_first(collective::Communicator& comm, const ClockSource& clock) {
  auto mine = static_cast<std::int64_t>(fnv(clock.kernel));
  std::vector<std::int64_t> kernels(static_cast<std::size_t>(comm.size()));
  comm.all_gather({&mine, 1, collective::Dtype::i64}, collective::piece(std::span(kernels)), {.name = "whose clock"});
  ClockOffset found;
  for (int r = 1; r < comm.size(); ++r) {
    if (kernels[static_cast<std::size_t>(r)] == kernels[0]) continue;
    if (comm.rank().value == 0) answer(comm, Rank{r}, clock);
    if (comm.rank().value == r) found = ask(comm, clock);
  }
  return found;
}

}  // namespace cohort::observe
