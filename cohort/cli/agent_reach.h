// Which of a launcher's addresses answers from here, and by which of ours it is reached: tried, all at once, the first that proves to hold
// the job's secret. Threads: one. Failure: Kind::timeout naming every address and its problem.
#pragma once
#include <functional>
#include <string>

#include "cohort/cli/agent_messages.h"

namespace cohort::cli {

struct Reached {
  std::string rendezvous;  // host:port that answered
  std::string address;     // of ours
};
// gone: asked now and then; when it says true nobody waits for the answer any more, and the result is empty.
Reached reach_launcher(const AgentCall& call, int watch, const std::function<bool()>& gone);

}  // namespace cohort::cli
