// How an agent on another host is started, and where its ranks find us. Threads: any. Failure: Kind::usage, Kind::system.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/cli/run_options.h"

namespace cohort::cli {

// The words that start the agent of this host: a remote shell (--ssh, COHORT_SSH, else ssh) with one command that a shell there reads; this
// program itself for this host. Neither the secret nor a variable of the job is among them: they follow on its standard input.
std::vector<std::string> agent_words(const RunOptions& options, const group::Environment& environment, const std::string& host);

// What of this environment goes along to other hosts: all but what belongs to a host or a login.
std::vector<std::pair<std::string, std::string>> travelling(const group::Environment& environment);

std::string listening_host(const std::string& interface);                              // of the coordinator of several hosts
std::vector<std::string> reachable_addresses(const std::string& interface, int port);  // every address at which others might find it

std::string shell_quoted(const std::string& word);  // 'it'\''s'

}  // namespace cohort::cli
