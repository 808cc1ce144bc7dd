// Ranks as real processes, over shared memory and over tcp: a rank killed in the middle of any collective is an error on all survivors
// within 1 s that names it; waiting burns no CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "cohort/base/slowdown.h"
#include "cohort/collective/communicator.h"
#include "cohort/net/connect.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;
using Body = std::function<std::string(Communicator&)>;

// Forked ranks that die with the test. Each writes what its body returned (or the failure's text) into a pipe.
class Ranks {
 public:
  Ranks(int ranks, const std::string& transport, const Body& body) {
    const auto secret = net::Secret::random();
    std::vector<net::Listener> listeners;
    net::ConnectPlan plan{.job = "laws", .epoch = {}, .me = {}, .secret = secret, .addresses = {}, .transport = transport};
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
  [[noreturn]] static void run(const net::ConnectPlan& plan, net::Listener listener, const Body& body, int out) {
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

struct CollectiveCase {
  std::string name;
  std::function<void(Communicator&, std::vector<float>&)> run;
};

Piece part(std::vector<float>& values, std::size_t count) { return piece(std::span(values).first(count)); }

const std::vector<CollectiveCase>& collectives() {
  constexpr std::size_t kMany = 300'000;
  static const std::vector<CollectiveCase> all{
      {"all_reduce_large", [](Communicator& c, auto& v) { c.all_reduce(part(v, kMany), Op::max); }},
      {"all_reduce_small", [](Communicator& c, auto& v) { c.all_reduce(part(v, 1), Op::max); }},
      {"all_reduce_ring", [](Communicator& c, auto& v) { c.all_reduce(part(v, kMany), Op::max, {.algorithm = "ring"}); }},
      {"all_reduce_hierarchical", [](Communicator& c, auto& v) { c.all_reduce(part(v, kMany), Op::max, {.algorithm = "hierarchical"}); }},
      {"all_reduce_zero_copy",
       [](Communicator& c, auto&) {
         thread_local const Region region = c.allocate(kMany * sizeof(float));
         c.all_reduce(piece(region.as<float>()), Op::max, {.algorithm = c.transport() == "shm" ? "zero_copy" : "tree"});
       }},
      {"reduce_scatter", [](Communicator& c, auto& v) { c.reduce_scatter(part(v, 3 * 1000), piece(std::span(v).last(1000)), Op::max); }},
      {"all_gather", [](Communicator& c, auto& v) { c.all_gather(piece(std::span(v).last(1000)), part(v, 3000)); }},
      {"broadcast", [](Communicator& c, auto& v) { c.broadcast(part(v, kMany), Rank{1}); }},
      {"reduce", [](Communicator& c, auto& v) { c.reduce(part(v, kMany), part(v, kMany), Op::max, Rank{0}); }},
      {"gather", [](Communicator& c, auto& v) { c.gather(piece(std::span(v).last(1000)), part(v, 3000), Rank{2}); }},
      {"scatter", [](Communicator& c, auto& v) { c.scatter(part(v, 3000), piece(std::span(v).last(1000)), Rank{1}); }},
      {"all_to_all", [](Communicator& c, auto& v) { c.all_to_all(part(v, 3000), piece(std::span(v).last(3000))); }},
      {"barrier", [](Communicator& c, auto&) { c.barrier(); }},
      {"recv",
       [](Communicator& c, auto& v) {
         const int right = (c.rank().value + 1) % c.size();
         const int left = (c.rank().value + c.size() - 1) % c.size();
         c.send(part(v, 100), Rank{right}, 3);
         c.recv(part(v, 100), Rank{left}, 3);
       }},
  };
  return all;
}

void expect_death_is_named(const std::string& transport, const CollectiveCase& collective) {
  Ranks ranks(3, transport, [&](Communicator& comm) -> std::string {
    if (comm.transport() != transport) return "wrong transport";
    std::vector<float> values(700'000, 1.0F);
    for (const auto end = Clock::now() + 15s; Clock::now() < end;) collective.run(comm, values);
    return "nothing happened";
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(ranks.read_line(r), "ready");
  for (int r = 0; r < 3; ++r) usleep(3000);  // somewhere in the middle; any moment must do
  const auto start = Clock::now();
  ranks.kill_one(1);
  for (const int survivor : {0, 2}) {
    const auto output = ranks.read_line(survivor);
    EXPECT_THAT(output, HasSubstr("rank 1")) << collective.name << " on rank " << survivor;
    EXPECT_THAT(output, ::testing::AnyOf(HasSubstr("died"), HasSubstr("lost"), HasSubstr("closed")))
        << collective.name << " on rank " << survivor;
  }
  EXPECT_LT(Seconds(Clock::now() - start).count(), 1.0 * slowdown()) << collective.name;
}

}  // namespace

TEST(ProcessLaws, ARankKilledInTheMiddleOfAnyCollectiveIsNamedOnSharedMemory) {
  for (const auto& collective : collectives()) expect_death_is_named("shm", collective);
}

TEST(ProcessLaws, ARankKilledInTheMiddleOfAnyCollectiveIsNamedOverTcp) {
  for (const auto& collective : collectives()) expect_death_is_named("tcp", collective);
}

TEST(ProcessLaws, ARankKilledInTheMiddleOfAnyCollectiveIsNamedOnTheOtherHostsToo) {
  for (const auto& collective : collectives()) expect_death_is_named("mixed", collective);
}

TEST(ProcessLaws, WaitingRanksUseNoCpu) {
  for (const std::string transport : {"shm", "tcp", "mixed"}) {
    Ranks ranks(4, transport, [](Communicator& comm) -> std::string {
      if (comm.rank().value == 0) usleep(600'000);
      comm.barrier();
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      const auto before = static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6 +
                          static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
      if (comm.rank().value == 0) usleep(1'000'000);
      comm.barrier();
      getrusage(RUSAGE_SELF, &used);
      const auto after = static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6 +
                         static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
      return after - before < 0.05 ? "idle" : fmt::format("{} s of CPU in a wait of 1 s", after - before);
    });
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(ranks.read_line(r), "ready");
      EXPECT_EQ(ranks.read_line(r), "idle") << transport << " rank " << r;
    }
  }
}

TEST(ProcessLaws, MoreThan4294967296ElementsAreReducedInPlaceAndStaged) {
  Ranks ranks(2, "shm", [](Communicator& comm) -> std::string {
    constexpr std::size_t kCount = (std::size_t{1} << 32) + 12'345;
    const Region region = comm.allocate(kCount);
    const auto values = region.as<std::uint8_t>();
    for (const std::string_view algorithm : {"zero_copy", "staged"}) {
      for (const std::size_t at : {std::size_t{0}, kCount / 2, (std::size_t{1} << 32) - 1, std::size_t{1} << 32, kCount - 1})
        values[at] = static_cast<std::uint8_t>(10 + comm.rank().value);
      comm.all_reduce(piece(values), Op::sum, {.algorithm = algorithm});
      for (const std::size_t at : {std::size_t{0}, kCount / 2, (std::size_t{1} << 32) - 1, std::size_t{1} << 32, kCount - 1})
        if (values[at] != 21) return fmt::format("{}: element {} is {}", algorithm, at, values[at]);
      if (values[1] != 0 || values[kCount - 2] != 0) return "a zero changed";
    }
    return "right";
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks.read_line(r), "ready");
    EXPECT_EQ(ranks.read_line(r), "right");
  }
}

}  // namespace cohort::collective
