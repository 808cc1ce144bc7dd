// Runs a part that every rank does for itself and that may fail on some: opening files, building a model. Fails on all ranks or on none.
//   run_on_all(comm, "the data", [&] { set = open_dataset(spec); });
// The lowest rank that failed throws its own failure, every other rank one of the same kind that names that rank, so that one line has the
// cause. Threads: one, a collective. Failure: as above; ranks that never come are the communicator's timeout.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"

namespace cohort::job {

void run_on_all(collective::Communicator& comm, std::string_view what, const std::function<void()>& part);

// Every rank's text, in rank order.
std::vector<std::string> gather_texts(collective::Communicator& comm, std::string mine, std::string_view what);

// True for the failure that run_on_all() throws on a rank whose own part did not fail: another rank reports the cause.
bool reported_by_another_rank(const Error& error, Rank me);

}  // namespace cohort::job
