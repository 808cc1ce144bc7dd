// Ranks as real processes of a test, over shared memory, tcp or both.
#pragma once
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/net/connect.h"

namespace cohort::collective {

using RankBody = std::function<std::string(Communicator&)>;

// Forked ranks that die with the test. Each writes what its body returned (or the failure's text) into a pipe.
class Ranks {
 public:
  Ranks(int ranks, const std::string& transport, const RankBody& body) {
    const auto secret = net::Secret::random().use_tls(transport == "tls");
    std::vector<net::Listener> listeners;
    net::ConnectPlan plan{.job = "laws", .epoch = {}, .me = {}, .secret = secret, .addresses = {}, .transport = transport};
    if (transport == "tls") plan.transport = "tcp";
    if (transport == "mixed") {  // two ranks a host
      plan.transport = "auto";
      for (int r = 0; r < ranks; ++r) plan.hosts.push_back(fmt::format("host {}", r / 2));
    }
    for (int r = 0; r < ranks; ++r) {
      listeners.push_back(net::listen_on({"127.0.0.1", 0}, secret));
      plan.addresses.push_back(listeners.back().address);
    }
    for (int r = 0; r < ranks; ++r) {
      int ends[2];
      if (pipe(ends) != 0) throw_system("pipe");
      const pid_t pid = fork();
      if (pid < 0) throw_system("fork");
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        plan.me = Rank{r};
        run(plan, std::move(listeners[static_cast<std::size_t>(r)]), body, ends[1]);
      }
      close(ends[1]);
      pipes_.emplace_back(ends[0]);
      pids_.push_back(pid);
    }
  }
  ~Ranks() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  void kill_one(int rank) { kill(pids_[static_cast<std::size_t>(rank)], SIGKILL); }
  // Everything that rank wrote until it ended or a marker line came.
  std::string read_line(int rank) {
    std::string text;
    for (char c = 0; ::read(pipes_[static_cast<std::size_t>(rank)].get(), &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }

 private:
  [[noreturn]] static void run(const net::ConnectPlan& plan, net::Listener listener, const RankBody& body, int out) {
    std::string output;
    try {
      const auto comm = open(net::connect_peers(plan, std::move(listener), Deadline::in(20s)), {.timeout = Seconds{120}});
      comm->barrier();
      if (write(out, "ready\n", 6) != 6) _exit(1);
      output = body(*comm);
    } catch (const Failure& failure) {
      output = failure.what();
    }
    output += "\n";
    if (write(out, output.data(), output.size()) != static_cast<ssize_t>(output.size())) _exit(1);
    _exit(0);
  }
  std::vector<pid_t> pids_;
  std::vector<Fd> pipes_;
};

}  // namespace cohort::collective
