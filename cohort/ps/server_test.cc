// Servers and clients over every transport: ranks as threads, a server on each of the first ranks, every rank a worker.
#include "cohort/ps/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/base/slowdown.h"
#include "cohort/collective/ranks.h"
#include "cohort/collective/service_thread.h"
#include "cohort/net/shm/shm.h"
#include "cohort/net/tcp/tcp.h"
#include "cohort/ps/session.h"

namespace cohort::ps {
namespace {

using collective::Communicator;
using collective::ServiceThread;
using testing::HasSubstr;

struct Worker {
  Communicator& comm;
  Client& client;
  int me = 0;
};

std::vector<std::unique_ptr<net::PeerLinks>> links_over(const std::string& transport, int ranks) {
  if (transport == "shm") return net::shm_world(ranks);
  if (transport == "tcp") return net::tcp_world(ranks);
  return net::loopback_world(ranks);
}

// The body on every rank, whose client says bye before the servers stop.
void serve(const std::string& transport, int ranks, int servers, const std::function<void(Worker&)>& body,
           Seconds patience = Seconds{60} * slowdown()) {
  collective::run_ranks(
      ranks,
      [&](Communicator& comm) {
        Session session(comm, {.servers = servers, .patience = patience});
        Worker worker{comm, session.client(), comm.rank().value};
        body(worker);
      },
      {}, [&](int n) { return links_over(transport, n); });
}

class Servers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Servers, testing::Values("loopback", "shm", "tcp"), [](const auto& given) { return given.param; });

// The sum is known: none is missing, none counts twice, on small messages and on large ones.
TEST_P(Servers, CountEveryPushOnceUnderEveryClock) {
  for (const GateRow& row : gates())
    for (const std::size_t count : {7U, 40'000U})
      serve(GetParam(), 3, 2, [&](Worker& w) {
        const auto table = w.client.make(
            {.name = "t", .count = count, .rule = "sgd(lr=1)", .clock = std::string(row.name), .average = false});
        std::vector<float> gradient(count, -1 - static_cast<float>(w.me)), x(count);
        for (int step = 0; step < 8; ++step) {
          w.client.push(table, piece(std::span(gradient)));
          w.client.mark(table);
          const Pulled pulled = w.client.pull_now(table, piece(std::span(x)));
          EXPECT_EQ(pulled.clock, step + 1);
          EXPECT_GE(x[count / 2], (step + 1) * (1 + w.me)) << "a read has the reader's own";
          if (const Gate gate = make_gate(row.name); gate.slack) EXPECT_LE(pulled.behind(), *gate.slack) << row.name;
        }
        w.client.pull(table, piece(std::span(x)), 0);
        w.client.wait(table);
        for (const float value : x) ASSERT_EQ(value, 8 * (1 + 2 + 3)) << row.name;
      });
}

TEST_P(Servers, KeepRowsByTheirIds) {
  serve(GetParam(), 3, 3, [](Worker& w) {
    const auto table = w.client.make_rows({.name = "rows", .width = 2, .rule = "sgd(lr=1)", .clock = "bsp"});
    const std::vector<std::uint64_t> mine{7, 1ULL << 60, 100U + static_cast<std::uint64_t>(w.me)};
    const std::vector<float> gradient{-1, -2, -3, -4, -5, -6};
    for (int step = 0; step < 4; ++step) {
      w.client.push_rows(table, mine, gradient);
      w.client.mark(table);
    }
    const std::vector<std::uint64_t> wanted{101, 7, 1ULL << 60, 55, 100, 102, 7};
    std::vector<float> rows(2 * wanted.size(), NAN);
    w.client.pull_rows(table, wanted, rows);
    w.client.wait(table);
    EXPECT_THAT(rows, testing::ElementsAre(20, 24, 12, 24, 36, 48, 0, 0, 20, 24, 20, 24, 12, 24));
  });
}

TEST_P(Servers, GiveAndTakeValuesAndStates) {
  serve(GetParam(), 2, 2, [](Worker& w) {
    const auto table = w.client.make({.name = "t", .count = 1000, .dtype = Dtype::f64, .rule = "sgd(lr=1, momentum=0.5)", .clock = "bsp"});
    std::vector<double> put(600), got(1000, -1);
    for (std::size_t i = 0; i < put.size(); ++i) put[i] = static_cast<double>(i);
    if (w.me == 0) w.client.put(table, 1, 200, piece(std::span(put)));
    w.comm.barrier();
    w.client.fetch(table, 1, 0, piece(std::span(got)));
    for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(got[i], i >= 200 && i < 800 ? static_cast<double>(i - 200) : 0) << i;
    w.comm.barrier();
  });
}

TEST(Server, RefusesTablesThatWorkersDefineDifferently) {
  std::atomic<int> refused = 0;
  serve("loopback", 2, 1, [&](Worker& w) {
    const auto table = w.client.make({.name = "t", .count = 4, .rule = w.me == 0 ? "sgd(lr=1)" : "sgd(lr=2)", .clock = "tap"});
    std::vector<float> x(4);
    const Error error = failure_of([&] { w.client.pull_now(table, piece(std::span(x))); });
    if (error.kind != Kind::usage) return;
    ++refused;
    EXPECT_THAT(error.what, HasSubstr("defines it otherwise"));
    EXPECT_THAT(error.what, HasSubstr("rank"));
  });
  EXPECT_EQ(refused, 1) << "whoever came second";
}

TEST(Server, RefusesWhatAWorkerMustNotAskForAndServesTheOthers) {
  serve("loopback", 2, 1, [&](Worker& w) {
    const auto table = w.client.make({.name = "t", .count = 4, .rule = "sgd(lr=1)", .clock = "tap"});
    std::vector<float> x(4);
    if (w.me == 1) {
      EXPECT_THAT(failure_of([&] { w.client.fetch(table, 9, 0, piece(std::span(x))); }).what, HasSubstr("state 9"));
      EXPECT_THAT(failure_of([&] { w.client.pull_now(table, piece(std::span(x))); }).what, HasSubstr("state 9"));
    } else {
      EXPECT_EQ(w.client.pull_now(table, piece(std::span(x))).low, 0);
    }
  });
}

TEST(Client, RefusesWhatDoesNotFitItsTable) {
  serve("loopback", 1, 1, [&](Worker& w) {
    const auto table = w.client.make({.name = "weights", .count = 4});
    std::vector<float> few(3);
    std::vector<double> wide(4);
    EXPECT_THAT(failure_of([&] { w.client.push(table, piece(std::span(few))); }).what, HasSubstr("weights"));
    EXPECT_EQ(failure_of([&] { w.client.pull(table, piece(std::span(wide))); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { w.client.wait(table); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { w.client.pull(table + 1, piece(std::span(wide))); }).kind, Kind::usage);
  });
}

// A worker that says bye is waited for no more.
TEST(Server, LetsTheOthersGoOnWhenAWorkerHasSaidBye) {
  serve("loopback", 2, 1, [&](Worker& w) {
    const auto table = w.client.make({.name = "t", .count = 4, .rule = "sgd(lr=1)", .clock = "bsp", .average = false});
    std::vector<float> gradient(4, -1), x(4);
    const int steps = w.me == 0 ? 2 : 5;
    for (int step = 0; step < steps; ++step) {
      w.client.push(table, piece(std::span(gradient)));
      w.client.mark(table);
      w.client.pull_now(table, piece(std::span(x)));
    }
    if (w.me == 1) EXPECT_EQ(x[0], 2 * 2 + 3);
  });
}

TEST(Session, GivesRanksThatOnlyServe) {
  collective::run_ranks(3, [](Communicator& comm) {
    Session session(comm, {.servers = 1, .dedicated = true, .patience = Seconds{60} * slowdown()});
    EXPECT_EQ(session.workers(), 2);
    EXPECT_EQ(session.works(), comm.rank().value < 2);
    if (!session.works()) {
      EXPECT_EQ(failure_of([&] { session.client(); }).kind, Kind::usage);
      return;
    }
    Client& client = session.client();
    const auto table = client.make({.name = "t", .count = 10, .rule = "sgd(lr=1)", .clock = "bsp"});
    std::vector<float> gradient(10, comm.rank().value == 0 ? -1.0F : -3.0F), x(10);
    client.push(table, piece(std::span(gradient)));
    client.mark(table);
    client.pull_now(table, piece(std::span(x)));
    EXPECT_EQ(x[9], 2) << "their mean";
  });
}

TEST(Session, RefusesNumbersOfServersThatCannotBe) {
  collective::run_ranks(2, [](Communicator& comm) {
    EXPECT_EQ(failure_of([&] { Session(comm, {.servers = 3}); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { Session(comm, {.servers = 2, .dedicated = true}); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { Session(comm, {.servers = 0, .dedicated = true}); }).kind, Kind::usage);
  });
}

// --- a rank that is lost

// Ranks 0 and 1 are workers, rank 0 serves; rank 1 goes without a bye when it has marked one clock.
void lose_a_worker(const std::string& clock, const std::function<void(Client&, Client::TableId)>& left) {
  auto links = net::loopback_world(2);
  std::vector<std::unique_ptr<Communicator>> comms(2);
  std::vector<std::future<std::unique_ptr<Communicator>>> opening;
  for (auto& one : links)
    opening.push_back(std::async(std::launch::async, [&one] { return collective::open(std::move(one), {.timeout = Seconds{60}}); }));
  for (std::size_t r = 0; r < 2; ++r) comms[r] = opening[r].get();
  const std::vector<Rank> workers{Rank{0}, Rank{1}}, servers{Rank{0}};
  auto own = comms[0]->channel();
  auto theirs = comms[1]->channel();
  collective::PeerChannel& channel = *own;
  ServiceThread service("parameter server", std::move(own), [&](collective::PeerChannel& c) {
    Server(c, workers).run();
    std::byte nothing{};
    c.recv(Rank{0}, 99'999'999, {&nothing, 1, Dtype::u8, Device::cpu}).wait(Deadline{});
  });
  Client survivor(channel, servers, 0, 2, Seconds{60} * slowdown());
  const DenseOptions options{.name = "t", .count = 4, .rule = "sgd(lr=1)", .clock = clock};
  try {
    Client other(*theirs, servers, 1, 2, Seconds{60} * slowdown());
    const auto table = other.make(options);
    other.mark(table);
    std::vector<float> x(4);
    other.fetch(table, 0, 0, piece(std::span(x)));  // so it was heard
    throw std::runtime_error("out of ideas");
  } catch (const std::runtime_error&) {
    theirs.reset();
    comms[1].reset();
  }
  left(survivor, survivor.make(options));
  survivor.bye();
  service.stop();
}

TEST(Server, SaysWhichWorkerWasLostWhereOthersMustWaitForIt) {
  for (const char* clock : {"bsp", "ssp(2)"})
    lose_a_worker(clock, [](Client& client, Client::TableId table) {
      std::vector<float> x(4);
      Error error{};
      for (int step = 0; step < 6 && error.what.empty(); ++step) {
        client.mark(table);
        const Error failed = failure_of([&] { client.pull_now(table, piece(std::span(x))); });
        if (failed.kind == Kind::peer_lost) error = failed;
      }
      EXPECT_THAT(error.what, HasSubstr("worker on rank 1 was lost at clock"));
      EXPECT_THAT(error.what, HasSubstr("checkpoint"));
    });
}

TEST(Server, GoesOnWithoutALostWorkerWhereNobodyWaits) {
  lose_a_worker("tap", [](Client& client, Client::TableId table) {
    std::vector<float> x(4), gradient(4, -1);
    for (int step = 0; step < 10; ++step) {
      client.push(table, piece(std::span(gradient)));
      client.mark(table);
      EXPECT_EQ(client.pull_now(table, piece(std::span(x))).clock, step + 1);
    }
    EXPECT_GE(x[0], 5);
  });
}

TEST(Client, SaysWhichServerIsGoneAndWhatToDo) {
  serve("loopback", 2, 1, [&](Worker& w) {
    const auto table = w.client.make({.name = "t", .count = 4, .clock = "tap"});
    if (w.me == 0) return;
    auto second = w.comm.channel();  // to a channel that rank 0 never opens
    Client lonely(*second, {Rank{0}}, 1, 2, Seconds{0.05});
    const auto there = lonely.make({.name = "other", .count = 4});
    std::vector<float> x(4);
    const Error error = failure_of([&] { lonely.pull_now(there, piece(std::span(x))); });
    EXPECT_EQ(error.kind, Kind::timeout);
    EXPECT_THAT(error.what, HasSubstr("table other, parameter server on rank 0"));
    EXPECT_EQ(w.client.pull_now(table, piece(std::span(x))).low, 0);
  });
}

}  // namespace
}  // namespace cohort::ps
