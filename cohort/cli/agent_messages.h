// What launcher and agent tell each other, as values and as bytes. Pure. Failure: Kind::corrupt for bytes that are none of these.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/cli/run_environment.h"
#include "cohort/group/hosts.h"
#include "cohort/net/secret.h"

namespace cohort::cli {

// Launcher: who we are and where the coordinator may be reached. One of the addresses will do.
struct AgentCall {
  std::string job;
  net::Secret secret;
  int first = 0;  // rank of this host
  std::vector<std::string> addresses;
  std::string interface;  // through which the ranks are to be reached; empty: by the way the coordinator is reached
  double start_timeout = 30;
  bool master = false;  // keep a port for MASTER_PORT, unless one is given
  int master_port = 0;
};

// Agent: the coordinator is reached.
struct AgentReady {
  std::string host;        // what this host calls itself
  std::string address;     // where its ranks can be reached
  std::string rendezvous;  // which of the addresses it was
  int master_port = 0;
  int cores = 1;
};

// Launcher: what to run. The agent adds what only its host knows: rendezvous, secret file, threads, cores.
struct AgentStart {
  RankSetting setting;  // of the whole host; the rank in it is the first one's
  std::vector<group::HostShare> hosts;
  int host = 0;  // which of them this is
  std::string path, folder;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string bind;
  bool input = false;                                        // rank 0 is here and reads what the launcher sends
  bool quit_asks = false;                                    // see RunOptions
  bool notices = false;                                      // SIGTERM and SIGUSR1 wait until a rank can take them for what they are
  bool saves = false;                                        // ranks that are left alone get a moment to save
  bool elastic() const { return !setting.elastic.empty(); }  // ranks are started by AgentMore, one by one
};

// Launcher: one more worker. Numbers of an elastic job are given once, slots again and again.
struct AgentMore {
  int number = 0;
  int slot = 0;
};
struct AgentFailed {
  int number = 0;
  std::string why;
};

struct AgentOutput {
  int rank = 0;
  int stream = 1;
  std::string bytes;
};
struct AgentEnded {
  int rank = 0;
  int status = 0;
};
struct AgentTrouble {
  int code = 1;
  std::string what;
};

std::vector<std::byte> encode(const AgentCall& m);
std::vector<std::byte> encode(const AgentReady& m);
std::vector<std::byte> encode(const AgentStart& m);
std::vector<std::byte> encode(const AgentOutput& m);  // also for `closed`, without bytes
std::vector<std::byte> encode(const AgentEnded& m);
std::vector<std::byte> encode(const AgentTrouble& m);
std::vector<std::byte> encode(const AgentMore& m);
std::vector<std::byte> encode(const AgentFailed& m);
std::vector<std::byte> encode(
    const std::vector<int>& numbers);  // `started`: the processes; `added`: worker, process; `signal`, `taken`: one

AgentCall decode_call(ConstBytes bytes);
AgentReady decode_ready(ConstBytes bytes);
AgentStart decode_start(ConstBytes bytes);
AgentOutput decode_output(ConstBytes bytes);
AgentEnded decode_ended(ConstBytes bytes);
AgentTrouble decode_trouble(ConstBytes bytes);
AgentMore decode_more(ConstBytes bytes);
AgentFailed decode_failed(ConstBytes bytes);
std::vector<int> decode_numbers(ConstBytes bytes, std::size_t least, std::size_t most);

}  // namespace cohort::cli
