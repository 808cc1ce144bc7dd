#include "cohort/net/connect.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <functional>
#include <future>

#include "cohort/base/slowdown.h"
#include "cohort/net/memory_probe.h"
#include "cohort/net/socket/socket.h"
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Ranks as processes. A body returns what it wants the parent to know; a Failure is reported as its text.
class Processes {
 public:
  using Body = std::function<std::string(PeerLinks&)>;
  Processes(int ranks, std::string transport, const Body& body) {
    plan_.job = "test";
    plan_.secret = Secret::random();
    if (const auto plus = transport.find("_streams"); plus != transport.npos) {
      plan_.streams = 3;
      transport.resize(plus);
    }
    plan_.transport = transport == "mixed" ? "auto" : transport;
    for (int r = 0; transport == "mixed" && r < ranks; ++r) plan_.hosts.push_back(r % 2 == 0 ? "even" : "odd");
    std::vector<Listener> listeners;
    for (int r = 0; r < ranks; ++r) listeners.push_back(listen_on({"127.0.0.1", 0}, plan_.secret));
    for (const auto& l : listeners) plan_.addresses.push_back(l.address);
    for (int r = 0; r < ranks; ++r) start(r, std::move(listeners[static_cast<std::size_t>(r)]), body);
  }
  ~Processes() {
    for (const auto& c : children_) kill(c.pid, SIGKILL);
    for (const auto& c : children_) waitpid(c.pid, nullptr, 0);
  }
  // The next line that rank r reported.
  std::string line(int r) {
    std::string text;
    const Deadline deadline = soon();
    for (char c = 0; wait_ready(children_[static_cast<std::size_t>(r)].output.get(), POLLIN, deadline);) {
      if (read(children_[static_cast<std::size_t>(r)].output.get(), &c, 1) != 1 || c == '\n') return text;
      text += c;
    }
    return text + " ... and then nothing until the deadline";
  }
  void kill_rank(int r) { kill(children_[static_cast<std::size_t>(r)].pid, SIGKILL); }

 private:
  struct Child {
    pid_t pid;
    Fd output;
  };
  void start(int r, Listener listener, const Body& body) {
    int ends[2];
    if (pipe(ends) != 0) throw_system("pipe");
    const pid_t pid = fork();
    if (pid != 0) {
      close(ends[1]);
      children_.push_back({pid, Fd{ends[0]}});
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    plan_.me = Rank{r};
    std::string result;
    try {
      auto links = connect_peers(plan_, std::move(listener), soon());
      report(ends[1], "connected");
      result = body(*links);
    } catch (const Failure& f) {
      result = fmt::format("{}: {}", kind_name(f.kind()), f.what());
    }
    report(ends[1], result);
    _exit(0);
  }
  static void report(int fd, std::string text) {
    text += '\n';
    if (write(fd, text.data(), text.size()) < 0) _exit(1);
  }

  ConnectPlan plan_;
  std::vector<Child> children_;
};

class Transports : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(ConnectPeers, Transports, testing::Values("auto", "shm", "tcp", "mixed", "tcp_streams", "mixed_streams"),
                         [](const auto& row) { return row.param; });

// Every rank sends a megabyte to every rank and checks what comes.
std::string exchange_all(PeerLinks& links) {
  const auto n = static_cast<std::size_t>(links.size());
  const auto mine = pattern(1_MiB + 17, static_cast<unsigned>(links.rank().value));
  std::vector<std::vector<std::byte>> got(n, std::vector<std::byte>(mine.size()));
  std::vector<Pending> pending;
  for (std::size_t p = 0; p < n; ++p)
    pending.push_back(links.link(Rank{static_cast<int>(p)}).recv(got[p], {0, kCollectiveTags + static_cast<std::uint32_t>(p)}));
  for (std::size_t p = 0; p < n; ++p)
    pending.push_back(
        links.link(Rank{static_cast<int>(p)}).send(mine, {0, kCollectiveTags + static_cast<std::uint32_t>(links.rank().value)}));
  for (auto& p : pending) p.wait(soon());
  for (std::size_t p = 0; p < n; ++p)
    if (got[p] != pattern(mine.size(), static_cast<unsigned>(p))) return "wrong bytes";
  for (std::size_t p = 0; p < n; ++p) send_now(links, static_cast<int>(p), {}, {0, 6});
  for (std::size_t p = 0; p < n; ++p) recv_now(links, static_cast<int>(p), 0, {0, 6});
  return std::string(links.transport());
}

std::string expected(const std::string& wish, int ranks) {
  if (wish == "auto") return "shm";
  if (wish == "tcp_streams") return "tcp";
  if (!wish.starts_with("mixed")) return wish;
  return ranks == 1 ? "shm" : ranks == 2 ? "tcp" : "mixed";  // named hosts: no, all or some ranks are on different ones
}

TEST_P(Transports, ConnectProcesses) {
  for (const int ranks : {1, 2, 5}) {
    Processes all(ranks, GetParam(), exchange_all);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(all.line(r), "connected");
      EXPECT_EQ(all.line(r), expected(GetParam(), ranks)) << "rank " << r << " of " << ranks;
    }
  }
}

TEST_P(Transports, NameAKilledRankOnAllRanksInUnderASecond) {
  Processes all(4, GetParam(), [](PeerLinks& links) {
    std::byte never[4];
    links.link(Rank{2}).recv(never, {0, 1}).wait(soon());
    return std::string("a message came");
  });
  for (int r = 0; r < 4; ++r) ASSERT_EQ(all.line(r), "connected");
  const auto begin = Clock::now();
  all.kill_rank(2);
  for (const int r : {0, 1, 3}) EXPECT_THAT(all.line(r), AllOf(HasSubstr("peer_lost"), HasSubstr("rank 2"))) << "rank " << r;
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
}

TEST_P(Transports, DetectAKilledRankWhileNobodyWaits) {
  Processes all(3, GetParam(), [](PeerLinks& links) {
    std::promise<std::string> told;
    links.watch([&](Rank rank, const Error& error) {
      if (rank == Rank{1}) told.set_value(error.what);
    });
    auto future = told.get_future();
    return future.wait_for(20s) == std::future_status::ready ? future.get() : std::string("nothing was reported");
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(all.line(r), "connected");
  const auto begin = Clock::now();
  all.kill_rank(1);
  for (const int r : {0, 2}) EXPECT_THAT(all.line(r), HasSubstr("rank 1"));
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
}

// ---- in one process, ranks as threads

struct Ranks {
  explicit Ranks(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      listeners.push_back(listen_on({"127.0.0.1", 0}, secret));
      addresses.push_back(listeners.back().address);
    }
  }
  ConnectPlan plan(int r) const { return {"test", Epoch{7}, Rank{r}, secret, addresses, "tcp", "auto", {}}; }
  std::future<std::unique_ptr<PeerLinks>> join(int r, Deadline deadline = soon()) { return join(plan(r), deadline); }
  std::future<std::unique_ptr<PeerLinks>> join(ConnectPlan p, Deadline deadline = soon()) {
    auto listener = std::make_shared<Listener>(std::move(listeners[static_cast<std::size_t>(p.me.value)]));
    return std::async(std::launch::async, [p, listener, deadline] { return connect_peers(p, std::move(*listener), deadline); });
  }
  Secret secret = Secret::random();
  std::vector<Listener> listeners;
  std::vector<Address> addresses;
};

TEST(ConnectPeers, NamesEveryMissingRankAtTheDeadline) {
  Ranks m(4);
  m.listeners[0].fd.reset();  // rank 0's process is gone; rank 3 never connects
  auto one = m.join(1, Deadline::in(2s));
  auto two = m.join(2, Deadline::in(2s));
  const Error error = failure_of([&] { two.get(); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 2 of 4"), HasSubstr("rank 0 ("), HasSubstr("refused"), HasSubstr("rank 3 ("),
                                HasSubstr("has not connected")));
  EXPECT_THAT(error.what, testing::Not(HasSubstr("rank 1 (")));
  EXPECT_EQ(error.rank, Rank{0});
  EXPECT_EQ(failure_of([&] { one.get(); }).kind, Kind::timeout);
}

// A full accept queue drops SYNs, as a dead network does.
TEST(ConnectPeers, WhereAllRanksRunAHostThatAnswersNoSynIsNamedSoon) {
  Ranks m(3);
  ASSERT_EQ(::listen(m.listeners[0].fd.get(), 0), 0);
  const SocketAddress full = SocketAddress::of(m.addresses[0]);
  std::vector<Fd> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.push_back(open_socket(AF_INET));
    ::connect(crowd.back().get(), full.get(), full.length);
  }
  const std::atomic<bool> given_up = false;
  const auto start = Clock::now();
  ConnectPlan one = m.plan(1), two = m.plan(2);
  one.given_up = two.given_up = &given_up;
  auto first = m.join(one, Deadline::in(60s)), second = m.join(two, Deadline::in(60s));
  for (auto* rank : {&first, &second}) {
    const Error error = failure_of([&] { rank->get(); });
    EXPECT_EQ(error.kind, Kind::timeout);
    EXPECT_EQ(error.rank, Rank{0});
    EXPECT_THAT(error.what, AllOf(HasSubstr("cannot reach"), HasSubstr("rank 0 (")));
  }
  EXPECT_THAT(Clock::now() - start, AllOf(testing::Ge(3s), testing::Le(30s)));
}

TEST(ConnectPeers, IsNotDisturbedByUnauthenticatedPeers) {
  Ranks m(2);
  std::vector<Fd> others;
  const auto connect_raw = [&](int r, std::string_view text) {
    const SocketAddress to = SocketAddress::of(m.addresses[static_cast<std::size_t>(r)]);
    Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    ASSERT_EQ(::connect(fd.get(), to.get(), to.length), 0);
    ASSERT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    others.push_back(std::move(fd));
  };
  for (int i = 0; i < 40; ++i) connect_raw(0, "");                           // silent
  for (int i = 0; i < 40; ++i) connect_raw(0, "GET / HTTP/1.1\r\n\r\n");     // another protocol
  for (int i = 0; i < 40; ++i) connect_raw(0, std::string_view("COHO", 4));  // half an opening
  auto zero = m.join(0);
  auto wrong_key = m.plan(1);
  wrong_key.secret = Secret::random();
  EXPECT_THAT(failure_of([&] {
                ControlConnection::connect(m.addresses[0], wrong_key.secret, {"test", Epoch{7}, Rank{1}, Role::worker}, soon());
              }).what,
              HasSubstr("secret"));
  EXPECT_THAT(failure_of([&] {
                ControlConnection::connect(m.addresses[0], m.secret, {"test", Epoch{6}, Rank{1}, Role::worker}, soon());
              }).what,
              AllOf(HasSubstr("membership epoch 6"), HasSubstr("membership epoch 7"), HasSubstr("a stale membership epoch")));
  EXPECT_THAT(failure_of([&] {
                ControlConnection::connect(m.addresses[0], m.secret, {"other", Epoch{7}, Rank{1}, Role::worker}, soon());
              }).what,
              AllOf(HasSubstr("'other'"), HasSubstr("'test'"), HasSubstr("two jobs")));
  EXPECT_THAT(failure_of([&] {
                ControlConnection::connect(m.addresses[0], m.secret, {"test", Epoch{7}, Rank{2}, Role::worker}, soon());
              }).what,
              HasSubstr("only workers with ranks 1 to 1 connect here"));
  auto one = m.join(1);
  AllPeerLinks world;
  world.push_back(zero.get());
  world.push_back(one.get());
  send_now(*world[0], 1, pattern(100, 1), {0, 0});
  EXPECT_EQ(recv_now(*world[1], 0, 100, {0, 0}), pattern(100, 1));
}

TEST(ConnectPeers, RefusesADuplicateRank) {
  Ranks m(3);
  auto zero = m.join(0);
  std::optional<ControlConnection> first =
      ControlConnection::connect(m.addresses[0], m.secret, {"test", Epoch{7}, Rank{1}, Role::worker}, soon());
  EXPECT_THAT(failure_of([&] {
                ControlConnection::connect(m.addresses[0], m.secret, {"test", Epoch{7}, Rank{1}, Role::worker}, soon());
              }).what,
              HasSubstr("rank 1 is already connected"));
  const ControlConnection second = ControlConnection::connect(m.addresses[0], m.secret, {"test", Epoch{7}, Rank{2}, Role::worker}, soon());
  EXPECT_EQ(second.peer().rank, Rank{0});
  first.reset();  // rank 0 is connected to all and waits for their next frames
  EXPECT_EQ(failure_of([&] { zero.get(); }).rank, Rank{1});
}

TEST(ConnectPeers, RefusesWhenAnotherRankAnswers) {
  Ranks m(2);
  auto plan = m.plan(1);
  std::swap(plan.addresses[0], plan.addresses[1]);
  const Listener impostor = std::move(m.listeners[1]);
  auto answer = std::async(std::launch::async, [&] {
    return failure_of([&] {
      ControlConnection::accept(accept_one(impostor, soon()), m.secret, {"test", Epoch{7}, Rank{1}, Role::worker}, soon());
    });
  });
  const Error error = failure_of([&] { connect_peers(plan, std::move(m.listeners[0]), soon()); });
  EXPECT_THAT(error.what, HasSubstr("rank 0 was expected at this address"));
  EXPECT_THAT(answer.get().what, HasSubstr("rank 0 was expected at this address"));
}

TEST(ConnectPeers, RefusesContradictingTransportsOnEveryRank) {
  Ranks m(2);
  auto shm = m.plan(1);
  shm.transport = "shm";
  auto zero = m.join(0);
  auto one = m.join(shm);
  for (auto* rank : {&zero, &one}) {
    const Error error = failure_of([&] { rank->get(); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1 asks for shm"), HasSubstr("rank 0 for tcp")));
  }
}

TEST(ConnectPeers, RefusesRanksThatWantDifferentNumbersOfSockets) {
  Ranks m(2);
  auto two = m.plan(0), four = m.plan(1);
  two.streams = 2;
  four.streams = 4;
  auto zero = m.join(two, Deadline::in(1s * slowdown())), one = m.join(four);
  EXPECT_THAT(failure_of([&] { one.get(); }).what, AllOf(HasSubstr("4"), HasSubstr("2 sockets"), HasSubstr("COHORT_STREAMS")));
  EXPECT_EQ(failure_of([&] { zero.get(); }).kind, Kind::timeout);
}

TEST(ConnectPeers, DefaultsToSeveralSocketsOnlyWhereTcpPaces) {
  EXPECT_EQ(streams_for("auto"), 1);
  EXPECT_EQ(streams_for("cubic"), 1);
  EXPECT_GT(streams_for("bbr"), 1);
}

TEST(ConnectPeers, RefusesSharedMemoryBetweenHostsWithDifferentNames) {
  Ranks m(2);
  std::vector<std::future<std::unique_ptr<PeerLinks>>> ranks;
  for (int r = 0; r < 2; ++r) {
    auto plan = m.plan(r);
    plan.transport = "shm";
    plan.hosts = {"alpha", "beta"};
    ranks.push_back(m.join(plan));
  }
  for (auto& rank : ranks) {
    const Error error = failure_of([&] { rank.get(); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, AllOf(HasSubstr("alpha"), HasSubstr("beta")));
  }
}

TEST(ConnectPeers, NumbersHostsAlikeFromWhoMapsWhom) {
  using Maps = std::vector<std::vector<bool>>;
  EXPECT_EQ(number_hosts(Maps{{true, true}, {true, true}}), (std::vector<int>{0, 0}));
  EXPECT_EQ(number_hosts(Maps{{true, true}, {false, true}}), (std::vector<int>{0, 1})) << "one way is not enough";
  const Maps chain{{true, true, false}, {true, true, true}, {false, true, true}};
  EXPECT_EQ(number_hosts(chain), (std::vector<int>{0, 0, 1})) << "all ranks of a host map each other";
  const Maps apart{{true, false, true, false}, {false, true, false, true}, {true, false, true, false}, {false, true, false, true}};
  EXPECT_EQ(number_hosts(apart), (std::vector<int>{0, 1, 0, 1}));
}

TEST(ConnectPeers, RefusesAPlanThatCannotWork) {
  for (const int streams : {-1, kMostStreams + 1}) {
    Ranks m(2);
    ConnectPlan plan = m.plan(0);
    plan.streams = streams;
    EXPECT_EQ(failure_of([&] { m.join(plan).get(); }).kind, Kind::usage);
  }
  Ranks m(2);
  auto plan = m.plan(0);
  plan.me = Rank{2};
  EXPECT_EQ(failure_of([&] { connect_peers(plan, listen_on({"127.0.0.1", 0}, {}), soon()); }).kind, Kind::usage);
  plan = m.plan(0);
  plan.secret = {};
  EXPECT_EQ(failure_of([&] { connect_peers(plan, listen_on({"127.0.0.1", 0}, {}), soon()); }).kind, Kind::usage);
  plan = {"test", Epoch{}, Rank{0}, Secret::random(), {m.addresses[0]}, "pigeon", "auto", {}};
  EXPECT_THAT(failure_of([&] { connect_peers(plan, listen_on({"127.0.0.1", 0}, {}), soon()); }).what, HasSubstr("'pigeon' is unknown"));
  plan = m.plan(0);
  plan.hosts = {"alpha"};
  EXPECT_THAT(failure_of([&] { connect_peers(plan, listen_on({"127.0.0.1", 0}, {}), soon()); }).what, HasSubstr("1 hosts are named"));
}

}  // namespace
}  // namespace cohort::net
