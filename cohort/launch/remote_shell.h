// How an agent on another host is started, and at which addresses its ranks find the coordinator. Threads: any. Failure: Kind::usage,
// Kind::system.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/launch/options.h"

namespace cohort::launch {

// The words that start the agent of this host: a remote shell (--ssh, COHORT_SSH, else ssh) with one command that a shell there runs; this
// program itself for this host. Neither the secret nor a variable of the job is among them: they follow on standard input.
std::vector<std::string> agent_command_line(const LaunchOptions& options, const group::Environment& environment, const std::string& host);

// The variables that ranks on other hosts get: all but those that belong to a host or a login.
std::vector<std::pair<std::string, std::string>> forwarded_environment(const group::Environment& environment);

std::string listen_address(const std::string& interface);                              // of the coordinator of several hosts
std::vector<std::string> reachable_addresses(const std::string& interface, int port);  // every address at which others might find it

std::string shell_quoted(const std::string& word);  // 'it'\''s'

}  // namespace cohort::launch
