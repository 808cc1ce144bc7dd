// What every transport promises, as one suite (conformance_*_test.cc). A new transport runs all of it by naming a factory:
//
//   struct Pigeon { static std::vector<std::unique_ptr<PeerLinks>> make(int ranks) { return pigeon_world(ranks); } };
//   INSTANTIATE_TEST_SUITE_P(Pigeon, Conformance, testing::Values(Factory{Pigeon::make}));
//
// Ranks are threads of the test; every wait is bounded by soon().
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "cohort/net/socket/testing.h"
#include "cohort/net/transport/link.h"

namespace cohort::net {

using AllPeerLinks = std::vector<std::unique_ptr<PeerLinks>>;

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& b : bytes) b = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24);
  return bytes;
}

inline void send_now(PeerLinks& links, int to, ConstBytes bytes, Tag tag) { links.link(Rank{to}).send(bytes, tag).wait(soon()); }

inline std::vector<std::byte> recv_now(PeerLinks& links, int from, std::size_t size, Tag tag) {
  std::vector<std::byte> bytes(size);
  links.link(Rank{from}).recv(bytes, tag).wait(soon());
  return bytes;
}

// Runs `work` once per rank, each in its own thread; the first exception is rethrown here.
template <class Work>
void on_all_ranks(AllPeerLinks& world, const Work& work) {
  std::vector<std::future<void>> ranks;
  for (auto& links : world) ranks.push_back(std::async(std::launch::async, [&work, &links] { work(*links); }));
  for (auto& rank : ranks) rank.wait();
  for (auto& rank : ranks) rank.get();
}

inline double thread_cpu_ms() {
  timespec at{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) * 1e3 + static_cast<double>(at.tv_nsec) / 1e6;
}

inline long thread_sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

struct Factory {
  AllPeerLinks (*make)(int ranks);
};
inline void PrintTo(const Factory&, std::ostream* out) { *out << "a factory"; }  // no address: it would be part of the test's name

class Conformance : public ::testing::TestWithParam<Factory> {
 protected:
  static AllPeerLinks make(int ranks) { return GetParam().make(ranks); }
};

}  // namespace cohort::net
