// Which of a launcher's addresses answers from here, and by which of ours it is reached: all are tried at once, and the first that proves
// to have the job's secret wins. Threads: one. Failure: Kind::timeout naming every address and its problem.
#pragma once
#include <functional>
#include <string>

#include "cohort/launch/agent_messages.h"

namespace cohort::launch {

struct LauncherAddress {
  std::string rendezvous;  // host:port that answered
  std::string address;     // of ours
};
// cancelled: asked now and then; once it says true the result is empty. watch: a descriptor to look up at when it becomes readable.
LauncherAddress probe_launcher(const AgentInit& init, int watch, const std::function<bool()>& cancelled);

}  // namespace cohort::launch
