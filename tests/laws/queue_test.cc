// Queues in real processes, over shared memory and over tcp: the same results as between threads, a killed rank is named to all
// survivors in time, and an idle queue burns no CPU.
#include "cohort/queue/queue.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "cohort/base/slowdown.h"
#include "cohort/net/connect.h"

namespace cohort::queue {
namespace {

using Body = std::function<void(Queue&)>;  // throws when something is not as it should be

void require(bool holds, const std::string& what) {
  if (!holds) throw_failure(Kind::bug, "{}", what);
}

// One forked process per rank, each with a negotiated queue. True when every rank ended well; a rank killed by its body does not count.
bool in_processes(int ranks, const std::string& transport, const Body& body) {
  const auto secret = net::Secret::random();
  net::ConnectPlan plan{.job = "queue-laws", .epoch = {}, .me = {}, .secret = secret, .addresses = {}, .transport = transport};
  std::vector<net::Listener> listeners;
  for (int r = 0; r < ranks; ++r) plan.addresses.push_back(listeners.emplace_back(net::listen_on({"127.0.0.1", 0}, secret)).address);
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = fork();
    if (pid < 0) throw_system("fork");
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 0;
    try {
      plan.me = Rank{r};
      auto links = net::connect_peers(plan, std::move(listeners[static_cast<std::size_t>(r)]), Deadline::in(20s));
      Queue queue(collective::open(std::move(links), {.timeout = 20s}), {.mode = Mode::negotiated});
      body(queue);
    } catch (const std::exception& e) {
      fmt::print(stderr, "rank {} over {}: {}\n", r, transport, e.what());
      status = 1;
    }
    _exit(status);
  }
  bool well = true;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    well = well && (WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }
  return well;
}

Operation all_reduce_of(std::vector<float>& data, std::string name) {
  return {.collective = Collective::all_reduce, .name = std::move(name), .parts = {{.in = collective::piece(std::span<float>(data))}}};
}

class QueueInProcesses : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, QueueInProcesses, testing::Values("shm", "tcp"), [](const auto& test) { return test.param; });

TEST_P(QueueInProcesses, AnyOrdersGiveTheSumsAndAllRanksEndTogether) {
  EXPECT_TRUE(in_processes(3, GetParam(), [](Queue& queue) {
    std::mt19937 random(7 + static_cast<unsigned>(queue.rank().value));
    for (int round = 0; round < 5; ++round) {
      std::vector<std::vector<float>> data;
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < 40; ++i) data.emplace_back(i * i * 17, 1.0f), order.push_back(i);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Handle> handles;
      for (const std::size_t i : order) handles.push_back(queue.submit(all_reduce_of(data[i], fmt::format("n{}", i))));
      for (std::size_t h = 0; h < handles.size(); ++h) queue.wait(handles[h], h % 2 == 0 ? Deadline{} : Deadline::in(15s));
      for (const auto& mine : data) require(std::count(mine.begin(), mine.end(), 3.0f) == std::ssize(mine), "a sum is wrong");
    }
  }));
}

// The rank may die before another has left the barrier that it died after: either operation may be the one that names it.
TEST_P(QueueInProcesses, AKilledRankIsNamedByTheSurvivorsInTime) {
  EXPECT_TRUE(in_processes(3, GetParam(), [](Queue& queue) {
    std::vector<float> data(1000, 1.0f);
    auto start = Clock::now();
    try {
      queue.wait(queue.submit({.collective = Collective::barrier}), Deadline::in(15s));
      if (queue.rank() == Rank{1}) raise(SIGKILL);
      start = Clock::now();
      queue.wait(queue.submit(all_reduce_of(data, "x")), queue.rank() == Rank{0} ? Deadline{} : Deadline::in(15s));
    } catch (const Failure& failure) {
      require(std::string(failure.what()).find("rank 1") != std::string::npos, fmt::format("rank 1 is not named in: {}", failure.what()));
      return require(Clock::now() - start < 2s * slowdown(), "the loss was noticed late");
    }
    require(false, "a sum with a dead rank succeeded");
  }));
}

TEST_P(QueueInProcesses, AnIdleQueueAndAWaitForASlowRankBurnNoCpu) {
  EXPECT_TRUE(in_processes(2, GetParam(), [](Queue& queue) {
    const auto used = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return Seconds(static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
    };
    std::vector<float> data(4, 1.0f);
    queue.wait(queue.submit(all_reduce_of(data, "warm")));
    const auto before = used();
    if (queue.rank() == Rank{1}) std::this_thread::sleep_for(1s);  // what is measured, not how ranks connect
    queue.wait(queue.submit(all_reduce_of(data, "late")));
    require(used() - before < Seconds{0.1},
            fmt::format("rank {} used {} s of CPU while it waited 1 s", queue.rank().value, (used() - before).count()));
  }));
}

}  // namespace
}  // namespace cohort::queue
