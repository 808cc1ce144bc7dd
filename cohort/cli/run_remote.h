// Ranks on several hosts, each host's in the hands of an agent there (agent.h) that is started through a remote shell.
//
//   agents start -> each finds an address at which the coordinator answers -> all have: each gets the program -> output, ends, signals
//
// Nothing is started anywhere before every host is ready. A host that is lost takes the job with it.
// Owner: the launcher. Threads: one. Failure: take_trouble(), with the host's name and what its remote shell said.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "cohort/cli/agent_channel.h"
#include "cohort/cli/agent_messages.h"
#include "cohort/cli/run_ranks.h"

namespace cohort::cli {

struct RemotePlan {
  std::vector<group::HostShare> hosts;
  std::vector<std::vector<std::string>> shells;  // for each host: the words that start its agent
  AgentCall call;                                // the same for all, but for their first rank
  AgentStart start;
  int input = -1;  // of rank 0
  bool reads_input = false;
  group::Environment environment;  // of the remote shells
  sigset_t signal_mask{};
};

class RemoteRanks : public Ranks {
 public:
  explicit RemoteRanks(RankSink& sink) : sink_(sink) {}
  void start(RemotePlan plan);  // starts the shells; the rest follows in move()

  std::vector<Ended> take_ends() override;
  std::optional<Trouble> take_trouble() override;
  void signal(int number) override;
  void add_polls(std::vector<pollfd>& fds, bool with_stdout, bool with_stderr) const override;
  void move(Clock::time_point now, bool with_stdout, bool with_stderr) override;
  bool anything_open() const override;
  bool busy() const override;
  Deadline next_look() const override;
  std::vector<std::string> take_news() override;

 private:
  enum class Stage : unsigned char { called, ready, started, over };
  struct Host {
    group::HostShare share;
    Child shell;
    std::optional<int> shell_status;
    Channel channel;
    Stage stage = Stage::called;
    AgentReady ready{};
    Tail last_words{};  // of the remote shell, and of the agent
    int silent = 0;     // beats without a word
    Deadline end_by{};  // the stream has ended: its shell may take so long to tell why
  };
  void hear(Host& host, Clock::time_point now);
  void take(Host& host, const AgentMessage& message, Clock::time_point now);
  void take_ready(Host& host, AgentReady ready);
  void take_output(const Host& host, const AgentOutput& output, Clock::time_point now);
  void take_end(const Host& host, const AgentEnded& ended);
  void read_shell(Host& host);
  void look_at_end(Host& host);
  void give_up(Host& host, int code, const std::string& what);  // this host is lost, and the job with it
  void mark_ended(const Host& host, int status, const std::string& how);
  void start_all();
  void tick();
  void feed();
  RankState& state(int rank) { return ranks_.at(static_cast<std::size_t>(rank - first_)); }
  void check_rank(const Host& host, int rank) const;

  RankSink& sink_;
  RemotePlan plan_;
  std::deque<Host> hosts_;
  std::vector<Ended> ends_;
  std::optional<Trouble> trouble_;
  std::vector<std::string> news_;
  Deadline ready_by_, beat_;
  Deadline kill_by_;              // agents have been told to kill: then they are given up
  Deadline settle_by_;            // all ranks have ended: agents may take so long to say what is left to say
  std::size_t input_unread_ = 0;  // bytes that rank 0's agent has not passed on yet
  bool input_over_ = true;
  bool listening_ = true;
};

}  // namespace cohort::cli
