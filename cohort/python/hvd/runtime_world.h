// The data of one world of the HorovodRuntime, for the runtime's own files. Owner: HorovodRuntime. Threads, failure: as runtime.h says.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/python/hvd/runtime.h"

namespace cohort::python {

struct HorovodRuntime::World {
  std::optional<Job> job;                            // of a fixed number of ranks
  std::unique_ptr<collective::Communicator> links;   // of an epoch of an elastic job
  std::unique_ptr<collective::Communicator> comm{};  // makes the process sets; no data moves on it
  group::Roster roster;
  int local_rank = 0, local_size = 1;
  queue::QueueOptions options;
  std::map<int, std::shared_ptr<ProcessSet>> sets{};  // guarded by the runtime's mutex_
  std::optional<Error> error{};                       // likewise: what ended it
  int next_set = 0;                                   // the same on every rank
  bool departed = false;
  collective::Communicator& all_ranks() const { return job ? job->comm() : *links; }
};

std::vector<Rank> checked(std::vector<int> ranks, int size);  // of a process set, sorted; Kind::usage where they cannot be
std::vector<int> numbers(const std::vector<Rank>& ranks);

}  // namespace cohort::python
