#include "cohort/collective/shared/staging_copy.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/net/shm/stream_copy.h"

namespace cohort::collective {
namespace {

// Two pages: one of them fits into the queue of stores of a Zen 5, which took it in 190 ns (median) from far cores, too, and 110 to 150
// between near ones elsewhere. Two took 780 to 1110 ns (5 and 95 % of 3000), about 2000 on an older processor.
constexpr std::size_t kSample = 2 * kPageBytes;
constexpr auto kQuick = std::chrono::nanoseconds(500);
// Smaller pieces stay hot in the caches of the two, and moving lines to and fro is slow even between near cores: 128 KiB all-reduced by two
// near ranks (pieces of half of it) took 15 us around the cache, 19 through it; 256 KiB took 29 and 24.
constexpr std::size_t kWatched = 128_KiB;

}  // namespace

void StagingCopy::put(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kPageBytes) {  // a fence costs more than it saves
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  if (bytes < kWatched) return net::stream_copy(to, from, bytes);
  const auto start = Clock::now();
  net::fetch_copy(to, from, kSample);
  record(Clock::now() - start);
  (near() ? net::fetch_copy : net::stream_copy)(to + kSample, from + kSample, bytes - kSample);
}

void StagingCopy::record(Clock::duration pages_took) {
  confidence_ = pages_took < kQuick ? std::min(confidence_ + 1, kMost) : std::max(confidence_ - 1, 0);
}

}  // namespace cohort::collective
