// A part that every rank does for itself and that may fail on some: opening files, building a model. Where it fails nobody goes on alone.
//   together(comm, "the data", [&] { set = open_dataset(spec); });
// The lowest rank that failed throws its own failure, every other rank one of the same kind that names that rank, so that one line tells
// the cause. Threads: one, a collective. Failure: as said; ranks that never come are the communicator's timeout.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"

namespace cohort {

void together(collective::Communicator& comm, std::string_view what, const std::function<void()>& part);

// Every rank's text, in rank order.
std::vector<std::string> gather_texts(collective::Communicator& comm, std::string mine, std::string_view what);

// True for the failure that together() throws on the ranks that had no trouble of their own: another rank says why.
bool told_elsewhere(const Error& error, Rank me);

}  // namespace cohort
