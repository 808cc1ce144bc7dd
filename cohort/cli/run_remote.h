// Ranks on several hosts, each host's in the hands of an agent there (agent.h) that is started through a remote shell.
//
//   agents start -> each finds an address at which the coordinator answers -> all have: each gets the program -> output, ends, signals
//
// Nothing is started anywhere before every host is ready. A host that is lost takes the job with it.
//
// In an elastic job (run_remote_elastic.cc) every host is on its own: its workers start when it is ready, more of them come as long as it
// has slots, and when it is lost so are its workers, nobody else's. It is not used for a while then (cool_down, doubling each time), and
// called again when a worker is wanted and nobody else has room.
// Owner: the launcher. Threads: one. Failure: take_trouble(), with the host's name and what its remote shell said.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cohort/cli/agent_channel.h"
#include "cohort/cli/agent_messages.h"
#include "cohort/cli/run_ranks.h"

namespace cohort::cli {

struct RemotePlan {
  std::vector<group::HostShare> hosts;
  std::function<std::vector<std::string>(const std::string&)> shell;  // the words that start a host's agent
  AgentCall call;                                                     // the same for all, but for their first rank
  AgentStart start;
  int input = -1;  // of rank 0
  bool reads_input = false;
  group::Environment environment;  // of the remote shells
  sigset_t signal_mask{};

  bool elastic = false;
  group::Hosts pool{};                            // elastic: all hosts there are, also those without a rank at the start
  Seconds cool_down{10};                          // elastic: a lost host is left alone for so long
  Seconds leave_grace{30};                        // elastic: for the workers of a host that is taken away
  std::function<void(pid_t, int)> other_ended{};  // a child of this process that is no shell of ours
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
  std::vector<std::string> take_notices() override;

  // --- an elastic job
  bool has_room() const;                   // add() has a host for one more
  int add();                               // its number
  int set_pool(const group::Hosts& pool);  // hosts came and went: workers of those that went are asked to leave. Slots that came

 private:
  enum class Stage : unsigned char { called, ready, started, over };
  struct Placed {
    int rank = 0;
    int slot = 0;
  };
  struct Host {
    std::string name;
    int slots = 1;
    std::vector<Placed> ranks{};  // also those that have ended
    Child shell{};
    std::optional<int> shell_status{};
    Channel channel{Channel::Side::launcher, {}, {}};
    Stage stage = Stage::over;
    AgentReady ready{};
    Tail last_words{};  // of the remote shell, and of the agent
    int silent = 0;     // beats without a word
    Deadline ready_by{};
    Deadline end_by{};  // the stream has ended: its shell may take so long to tell why
    // of an elastic job
    int losses = 0;             // times in a row that it was lost
    Deadline rests_until{};     // .. and it is left alone until then; never: it need not rest
    Clock::time_point began{};  // when it was ready last
    bool leaving = false;       // it is no longer among the hosts of this job
    bool by_itself = false;     // .. because its agent said so, whoever lists it
    Deadline leave_by{};        // then its workers are killed
  };
  void call(Host& host, bool master);
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
  // run_remote_elastic.cc
  void start_elastic();
  void start_workers(Host& host);
  void send_more(Host& host, const Placed& placed);
  void take_added(const Host& host, const std::vector<int>& numbers);
  void take_failed(Host& host, const AgentFailed& failed);
  void lose(Host& host, const std::string& what);
  Seconds rest(Host& host);  // for how long
  void look_at_leavers();
  int place(Host& host);  // a number for one more worker there
  void ask_to_leave(Host& host);
  int busy_slots(const Host& host) const;
  int first_free_slot(const Host& host) const;
  bool usable(const Host& host) const;
  std::optional<std::size_t> room() const;
  void feed();
  RankState& state(int rank) { return ranks_.at(static_cast<std::size_t>(rank - first_)); }
  void check_rank(const Host& host, int rank) const;

  RankSink& sink_;
  RemotePlan plan_;
  std::deque<Host> hosts_;
  std::vector<Ended> ends_;
  std::optional<Trouble> trouble_;
  std::vector<std::string> news_, notices_;
  Deadline beat_;
  Deadline kill_by_;              // agents have been told to kill: then they are given up
  Deadline settle_by_;            // all ranks have ended: agents may take so long to say what is left to say
  std::size_t input_unread_ = 0;  // bytes that rank 0's agent has not passed on yet
  bool input_over_ = true;
  bool listening_ = true;
};

}  // namespace cohort::cli
