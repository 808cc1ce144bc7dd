// Ranks on several hosts, each host's under an agent there (agent.h) that is started through a remote shell.
//
//   agents start -> each finds an address at which the coordinator answers -> all have: each gets the program -> output, ends, signals
//
// Nothing is started anywhere before every host is ready. A host that is lost ends the job.
//
// In an elastic job (remote_ranks_elastic.cc) hosts are independent: a host's workers start when it is ready, more of them as long as it
// has slots, and when it is lost so are its workers, nobody else's. It is not used for a while then (cool_down, doubling each time), and
// its agent is started again when a worker is wanted and no other host has a free slot. Owner: the launcher. Threads: one. Failure:
// take_host_failure(), with the host's name and what its remote shell printed.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cohort/launch/agent_channel.h"
#include "cohort/launch/agent_messages.h"
#include "cohort/launch/ranks.h"

namespace cohort::launch {

struct RemotePlan {
  std::vector<group::HostShare> hosts;
  std::function<std::vector<std::string>(const std::string&)> shell;  // the words that start a host's agent
  AgentInit init;                                                     // the same for all, but for their first rank
  AgentStart start;
  int input = -1;  // of rank 0
  bool reads_input = false;
  group::Environment environment;  // of the remote shells
  sigset_t signal_mask{};

  bool elastic = false;
  group::Hosts pool{};                            // elastic: all hosts there are, also those without a rank at the start
  Seconds cool_down{10};                          // elastic: a lost host is not used for so long
  Seconds leave_grace{30};                        // elastic: for the workers of a host that leaves
  std::function<void(pid_t, int)> other_ended{};  // a child of this process that is no remote shell
};

class RemoteRanks : public Ranks {
 public:
  explicit RemoteRanks(RankSink& sink) : sink_(sink) {}
  void start(RemotePlan plan);  // starts the shells; the rest follows in move()

  std::vector<Ended> take_ends() override;
  std::optional<HostFailure> take_host_failure() override;
  void signal(int number) override;
  void add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const override;
  void move(Clock::time_point now, bool with_stdout, bool with_stderr) override;
  bool anything_open() const override;
  bool busy() const override;
  Deadline next_look() const override;
  std::vector<std::string> take_verbose() override;
  std::vector<std::string> take_messages() override;

  // --- an elastic job
  bool has_free_slot() const;              // for add()
  int add();                               // its number; when its host's agent cannot be started there is no such worker, as before
  int set_pool(const group::Hosts& pool);  // hosts joined and left: workers of those that left are asked to leave. The number of new slots

 private:
  enum class Stage : unsigned char { starting, ready, started, over };
  struct PlacedRank {
    int rank = 0;
    int slot = 0;
  };
  struct Host {
    std::string name;
    int slots = 1;
    std::vector<PlacedRank> ranks{};  // also those that have ended
    Child shell{};
    std::optional<int> shell_status{};
    Channel channel{Channel::Side::launcher, {}, {}};
    Stage stage = Stage::over;
    AgentReady ready{};
    StderrTail last_lines{};    // of the remote shell, and of the agent
    int missed_heartbeats = 0;  // intervals without anything received
    Deadline ready_by{};
    Deadline end_by{};  // the stream has ended: its shell may take so long to say why
    // of an elastic job
    int losses = 0;               // times in a row that it was lost
    Deadline back_off_until{};    // .. and it is not used before then; never: it was not lost
    Clock::time_point began{};    // when it was ready last
    bool leaving = false;         // it is no longer among the hosts of this job
    bool left_by_itself = false;  // .. because its agent said so, even if it is still listed
    Deadline leave_by{};          // then its workers are killed
  };
  void start_agent(Host& host, bool master);
  void receive(Host& host, Clock::time_point now);
  void take(Host& host, const AgentMessage& message, Clock::time_point now);
  void take_ready(Host& host, AgentReady ready);
  void take_output(const Host& host, const AgentOutput& output, Clock::time_point now);
  void take_end(const Host& host, const AgentEnded& ended);
  void read_shell(Host& host);
  void look_at_end(Host& host);
  void give_up(Host& host, int code, const std::string& what);  // this host is lost; where the job is not elastic, the job with it
  void mark_ended(const Host& host, int status, const std::string& how);
  void start_all();
  void send_heartbeats();
  // remote_ranks_elastic.cc
  void start_elastic();
  void start_workers(Host& host);
  void send_start(Host& host, const PlacedRank& placed);
  void take_worker_started(const Host& host, const std::vector<int>& numbers);
  void take_worker_failed(Host& host, const AgentWorkerFailed& failed);
  void on_host_lost(Host& host, const std::string& what);
  Seconds back_off(Host& host);  // for how long
  void end_leaving_hosts();
  int place_worker(Host& host);  // its number
  void ask_to_leave(Host& host);
  int used_slots(const Host& host) const;
  int first_free_slot(const Host& host) const;
  bool usable(const Host& host) const;
  std::optional<std::size_t> host_with_free_slot() const;
  void forward_input();
  RankState& state(int rank) { return ranks_.at(static_cast<std::size_t>(rank - first_)); }
  void check_rank(const Host& host, int rank) const;

  RankSink& sink_;
  RemotePlan plan_;
  std::deque<Host> hosts_;
  std::vector<Ended> ends_;
  std::optional<HostFailure> host_failure_;
  std::vector<std::string> verbose_, messages_;
  Deadline next_heartbeat_;
  Deadline kill_by_;              // agents have been told to kill: then they are given up
  Deadline settle_by_;            // all ranks have ended: agents may take so long to send what is left
  std::size_t input_unread_ = 0;  // bytes that rank 0 has not read yet, as far as its agent has said
  bool input_over_ = true;
  bool reading_ = true;
};

}  // namespace cohort::launch
