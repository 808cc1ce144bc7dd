// The messages of launcher and agent, as values and as bytes. Pure. Failure: Kind::corrupt for bytes that are none of them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/group/hosts.h"
#include "cohort/launch/rank_environment.h"
#include "cohort/net/crypto/secret.h"

namespace cohort::launch {

// Launcher: which job this is and where its coordinator may be reached. One of the addresses will do.
struct AgentInit {
  std::string job;
  net::Secret secret;
  int first = 0;  // rank of this host
  std::vector<std::string> addresses;
  std::string interface;  // through which the ranks are to be reached; empty: the one by which the coordinator is reached
  double start_timeout = 30;
  bool master = false;  // reserve a port for MASTER_PORT, unless one is given
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
  bool sigquit_reports = false;                              // see WorkerTraits
  bool preemptible = false;                                  // likewise
  bool saves = false;                                        // ranks get a moment to save when the launcher is lost
  bool elastic() const { return !setting.elastic.empty(); }  // ranks are started by AgentStartWorker, one by one
};

// Launcher: one more worker. Numbers of an elastic job are used once, slots again and again.
struct AgentStartWorker {
  int number = 0;
  int slot = 0;
};
struct AgentWorkerFailed {
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
  bool for_memory = false;  // MemoryKills
};
struct AgentError {
  int code = 1;
  std::string what;
};

std::vector<std::byte> encode(const AgentInit& m);
std::vector<std::byte> encode(const AgentReady& m);
std::vector<std::byte> encode(const AgentStart& m);
std::vector<std::byte> encode(const AgentOutput& m);  // also of AgentFrame::closed, without bytes
std::vector<std::byte> encode(const AgentEnded& m);
std::vector<std::byte> encode(const AgentError& m);
std::vector<std::byte> encode(const AgentStartWorker& m);
std::vector<std::byte> encode(const AgentWorkerFailed& m);
std::vector<std::byte> encode(
    const std::vector<int>& numbers);  // started: the processes; worker_started: worker, process; signal, input_ack: one

AgentInit decode_init(ConstBytes bytes);
AgentReady decode_ready(ConstBytes bytes);
AgentStart decode_start(ConstBytes bytes);
AgentOutput decode_output(ConstBytes bytes);
AgentEnded decode_ended(ConstBytes bytes);
AgentError decode_error(ConstBytes bytes);
AgentStartWorker decode_start_worker(ConstBytes bytes);
AgentWorkerFailed decode_worker_failed(ConstBytes bytes);
std::vector<int> decode_numbers(ConstBytes bytes, std::size_t least, std::size_t most);

}  // namespace cohort::launch
