// What every transport promises, as one suite (conformance_test.cc). A new transport inherits it whole by naming a factory:
//
//   struct Pigeon { static std::vector<std::unique_ptr<Mesh>> make(int ranks) { return pigeon_meshes(ranks); } };
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

#include "cohort/net/link.h"

namespace cohort::net {

using Meshes = std::vector<std::unique_ptr<Mesh>>;

inline Deadline soon() { return Deadline::in(60s); }  // generous: sanitizers on a busy machine

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& b : bytes) b = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24);
  return bytes;
}

inline void send_now(Mesh& mesh, int to, ConstBytes bytes, Tag tag) { mesh.link(Rank{to}).send(bytes, tag).wait(soon()); }

inline std::vector<std::byte> recv_now(Mesh& mesh, int from, std::size_t size, Tag tag) {
  std::vector<std::byte> bytes(size);
  mesh.link(Rank{from}).recv(bytes, tag).wait(soon());
  return bytes;
}

// Runs `work` once per rank, each in its own thread; the first exception comes out here.
template <class Work>
void on_all_ranks(Meshes& meshes, const Work& work) {
  std::vector<std::future<void>> ranks;
  for (auto& mesh : meshes) ranks.push_back(std::async(std::launch::async, [&work, &mesh] { work(*mesh); }));
  for (auto& rank : ranks) rank.wait();
  for (auto& rank : ranks) rank.get();
}

// The error that `work` ends with; a bug named "no failure" when it does not fail.
template <class Work>
Error failure_of(const Work& work) {
  try {
    work();
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {Kind::bug, "no failure", kNoRank};
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
  Meshes (*make)(int ranks);
};
inline void PrintTo(const Factory&, std::ostream* out) { *out << "a factory"; }  // no address: it would be part of the test's name

class Conformance : public ::testing::TestWithParam<Factory> {
 protected:
  static Meshes make(int ranks) { return GetParam().make(ranks); }
};

}  // namespace cohort::net
