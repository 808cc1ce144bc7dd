// Ranks as threads with a queue each, for tests: run_queues(4, options, [](Queue& queue) { ... }) runs the body once per rank.
// Queues go only when every body has ended, so that no rank leaves early by accident; the first failure is rethrown.
#pragma once
#include <barrier>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cohort/net/transport/loopback.h"
#include "cohort/queue/queue.h"

namespace cohort::queue {

// Every wait in the tests: far above what is needed, below the test's own limit. With a deadline the progress thread does the work.
inline Deadline soon() { return Deadline::in(20s); }
// Without one, the waiting thread works itself. The communicator's timeout, and for a name that never comes the test's, end it.
inline Deadline working() { return {}; }
inline Deadline either(bool works) { return works ? working() : soon(); }

inline collective::Options test_options() { return {.timeout = 30s}; }

// All queues of a group of ranks in one thread's hands; opened side by side, since opening is collective.
inline std::vector<std::unique_ptr<Queue>> open_queues(int ranks, const QueueOptions& options) {
  auto links = net::loopback_world(ranks);
  std::vector<std::unique_ptr<Queue>> queues(links.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < links.size(); ++r) {
    threads.emplace_back([&, r] {
      queues[r] = std::make_unique<Queue>(collective::open(std::shared_ptr<net::PeerLinks>(std::move(links[r])), test_options()), options);
    });
  }
  for (auto& thread : threads) thread.join();
  return queues;
}

inline void run_queues(int ranks, const QueueOptions& options, const std::function<void(Queue&)>& body) {
  auto queues = open_queues(ranks, options);
  std::vector<std::exception_ptr> failures(queues.size());
  std::barrier all_done(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < queues.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*queues[r]);
      } catch (...) {
        failures[r] = std::current_exception();
      }
      all_done.arrive_and_wait();
      queues[r].reset();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// The failure that `work` throws, or kind bug and an empty text when it throws none.
template <class Work>
Error failure_of(Work&& work) {
  try {
    work();
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {};
}

template <class T>
Operation all_reduce_of(std::vector<T>& data, std::string name, Op op = Op::sum) {
  Operation o{.collective = Collective::all_reduce, .name = std::move(name)};
  o.parts.push_back({.in = collective::piece(std::span<T>(data))});
  o.op = op;
  return o;
}

}  // namespace cohort::queue
