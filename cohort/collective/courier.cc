#include "cohort/collective/courier.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/net/stream_copy.h"

namespace cohort::collective {
namespace {

constexpr auto kQuick = std::chrono::nanoseconds(400);  // a page took 110 to 150 ns between near cores, 1000 between far ones
// Smaller pieces stay hot in the caches of the two, and pulling them to and fro is slow even next door: 128 KiB all-reduced by two near
// ranks (pieces of half of it) took 15 us around the cache, 19 through it; 256 KiB took 29 and 24.
constexpr std::size_t kWatched = 128_KiB;

}  // namespace

void Courier::put(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kPageBytes) {  // a fence costs more than it saves
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  if (bytes < kWatched) return net::stream_copy(to, from, bytes);
  const auto start = Clock::now();
  net::fetch_copy(to, from, kPageBytes);
  saw(Clock::now() - start);
  (near() ? net::fetch_copy : net::stream_copy)(to + kPageBytes, from + kPageBytes, bytes - kPageBytes);
}

void Courier::saw(Clock::duration page_took) {
  confidence_ = page_took < kQuick ? std::min(confidence_ + 1, kMost) : std::max(confidence_ - 1, 0);
}

}  // namespace cohort::collective
