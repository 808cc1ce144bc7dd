// Where a rank is: its step, what it does since when, and which operations it is inside. Written by the loop (a few words a step), read by
// whoever wants to know why nothing moves: SIGQUIT to `cohort train` prints it for every rank.
// Owner: the program, one per rank. Threads: any. Failure: none.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/collective/communicator.h"

namespace cohort {

class Whereabouts {
 public:
  void doing(const char* phase);  // a literal: it is kept, not copied
  void step(std::int64_t number, std::int64_t of);
  // "step 12 of 400, forward and backward for 1.2 s; in all_reduce 'bucket 0 (..)', 25 MiB, for 0.3 s"
  std::string text() const;

 private:
  friend class Operation;
  struct Inside {
    const char* verb;
    std::string name;
    std::size_t bytes;
    Clock::time_point since;
  };
  mutable std::mutex mutex_;  // guards everything
  const char* phase_ = "starting";
  Clock::time_point since_ = Clock::now();
  std::int64_t step_ = 0, of_ = 0;
  std::list<Inside> inside_;
};

// While it lives, its thread is inside this operation.
class Operation {
 public:
  Operation(Whereabouts& where, const char* verb, std::string_view name, std::size_t bytes);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  Whereabouts& where_;
  std::list<Whereabouts::Inside>::iterator mine_;
};

// The same communicator, whose collectives show up in `where`; so do those of its children. Both outlive what is returned.
std::unique_ptr<collective::Communicator> watched(collective::Communicator& comm, Whereabouts& where);

}  // namespace cohort
