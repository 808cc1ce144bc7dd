// Ranks as threads, for tests: run_ranks(4, [](Communicator& comm) { ... }) runs the body once per rank and rethrows the first failure.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::collective {

using MakeLinks = std::function<std::vector<std::unique_ptr<net::PeerLinks>>(int)>;

inline void run_ranks(int ranks, const std::function<void(Communicator&)>& body, Options options = {}, const MakeLinks& make = nullptr) {
  if (options.timeout > Seconds{60}) options.timeout = Seconds{60};  // a hang is a failed test, not a stuck one
  auto all_links = make ? make(ranks) : net::loopback_world(ranks);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r, links = std::shared_ptr<net::PeerLinks>(std::move(all_links[static_cast<std::size_t>(r)]))]() mutable {
      try {
        const auto comm = open(std::move(links), options);
        body(*comm);
      } catch (...) {
        failures[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace cohort::collective
