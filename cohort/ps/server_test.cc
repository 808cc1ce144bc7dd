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
#include "cohort/ps/request_failure.h"
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
        const auto table =
            w.client.make({.name = "t", .count = count, .rule = "sgd(lr=1)", .clock = std::string(row.name), .average = false});
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

// --- a server by hand, and ranks that are lost

// Rank 0 serves ranks 0 .. n - 1; the test speaks for them.
class ByHand {
 public:
  explicit ByHand(int ranks, std::size_t most_bytes = std::size_t{64} << 30) : comms_(index(ranks)), channels_(index(ranks)) {
    auto links = net::loopback_world(ranks);
    std::vector<std::future<std::unique_ptr<Communicator>>> opening;
    for (auto& one : links)
      opening.push_back(std::async(std::launch::async, [&one] { return collective::open(std::move(one), {.timeout = Seconds{60}}); }));
    std::vector<Rank> workers;
    for (int r = 0; r < ranks; ++r) {
      workers.push_back(Rank{r});
      comms_[index(r)] = opening[index(r)].get();
      channels_[index(r)] = comms_[index(r)]->channel();
    }
    own_ = channels_[0].get();
    service_ = std::make_unique<ServiceThread>("parameter server", std::move(channels_[0]), [=, this](collective::PeerChannel& c) {
      Server(c, workers, most_bytes).run();
      ended_.set_value();
      std::byte nothing{};
      c.recv(Rank{0}, 99'999'999, {&nothing, 1, Dtype::u8, Device::cpu}).wait(Deadline{});
    });
  }
  ~ByHand() { service_->stop(); }
  collective::PeerChannel& channel(int rank) { return rank == 0 ? *own_ : *channels_[index(rank)]; }
  std::unique_ptr<Client> client(int rank) {
    return std::make_unique<Client>(channel(rank), std::vector<Rank>{Rank{0}}, rank, static_cast<int>(comms_.size()),
                                    Seconds{60} * slowdown());
  }
  void lose(int rank) {
    channels_[index(rank)].reset();
    comms_[index(rank)].reset();
  }
  bool ends(Seconds patience) { return ended_.get_future().wait_for(patience) == std::future_status::ready; }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::vector<std::unique_ptr<Communicator>> comms_;
  std::vector<std::unique_ptr<collective::PeerChannel>> channels_;
  collective::PeerChannel* own_ = nullptr;
  std::promise<void> ended_;
  std::unique_ptr<ServiceThread> service_;
};

// Ranks 0 and 1 are workers, rank 0 serves; rank 1 goes without a bye when it has marked one clock.
void lose_a_worker(const std::string& clock, const std::function<void(Client&, Client::TableId)>& left) {
  ByHand server(2);
  const auto survivor = server.client(0);
  const DenseOptions options{.name = "t", .count = 4, .rule = "sgd(lr=1)", .clock = clock};
  try {
    const auto other = server.client(1);
    const auto table = other->make(options);
    other->mark(table);
    std::vector<float> x(4);
    other->fetch(table, 0, 0, piece(std::span(x)));  // so it was heard
    throw std::runtime_error("out of ideas");
  } catch (const std::runtime_error&) {
    server.lose(1);
  }
  left(*survivor, survivor->make(options));
  survivor->bye();
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

// A push that is held back until others have marked hears of a lost one, too, whichever comes first, and however large it is.
TEST(Server, SaysWhichWorkerWasLostToOneWhosePushIsHeldBack) {
  for (const std::size_t count : {4U, 40'000U})
    for (const bool lost_first : {false, true}) {
      ByHand server(2);
      const auto client = server.client(0);
      const auto table = client->make({.name = "t", .count = count, .rule = "sgd(lr=1)", .clock = "bsp"});
      std::vector<float> gradient(count, -1), x(count);
      if (lost_first) server.lose(1);
      client->push(table, piece(std::span(gradient)));
      client->mark(table);
      client->push(table, piece(std::span(gradient)));
      if (!lost_first) server.lose(1);
      client->mark(table);
      const Error error = failure_of([&] { client->pull_now(table, piece(std::span(x))); });
      EXPECT_EQ(error.kind, Kind::peer_lost);
      EXPECT_THAT(error.what, HasSubstr("worker on rank 1 was lost at clock"));
    }
}

// The last mark of a loop has the server send a read that nobody takes.
TEST(Server, EndsAlthoughTheReadsThatItSentAreNotTaken) {
  ByHand server(1);
  const auto client = server.client(0);
  const std::size_t count = 40'000;  // more than a message that leaves without its receive
  const auto table = client->make({.name = "t", .count = count, .rule = "sgd(lr=1)", .clock = "ssp_push(2)"});
  std::vector<float> gradient(count, -1);
  for (int step = 0; step < 3; ++step) {
    client->push(table, piece(std::span(gradient)));
    client->mark(table);
  }
  client->bye();
  EXPECT_TRUE(server.ends(Seconds{10} * slowdown()));
}

// --- requests that cannot be met

TEST(Server, SaysWhyAlsoWhereItSendsReadsUnasked) {
  serve("loopback", 1, 1, [](Worker& w) {
    for (const std::size_t count : {4U, 40'000U}) {
      const auto table = w.client.make({.name = "t", .count = count, .rule = "lamb", .clock = "ssp_push(2)"});
      std::vector<float> gradient(count), x(count);
      w.client.push(table, piece(std::span(gradient)));
      w.client.mark(table);
      const Error error = failure_of([&] { w.client.pull_now(table, piece(std::span(x))); });
      EXPECT_EQ(error.kind, Kind::usage);
      EXPECT_THAT(error.what, HasSubstr("whole tensors"));
    }
  });
}

// Worker 1 sends a request and the bytes with it, then asks for something: what it is told. Worker 0 has made table 0, and goes on.
Reply told_after(const Request& request, std::size_t bytes, const std::function<Client::TableId(Client&)>& make) {
  ByHand server(2);
  const auto client = server.client(0);
  const auto table = make(*client);
  const auto try_it = [&] {
    std::vector<float> none;
    client->pull_rows(table, {}, none);
    return client->wait(table).clock;
  };
  EXPECT_EQ(try_it(), 0);
  collective::PeerChannel& channel = server.channel(1);
  std::vector<std::byte> payload(bytes);
  auto head = encode(request), ask = encode({.verb = Verb::fetch});
  std::array<std::byte, kReplyBytes> reply{};
  const auto piece_of = [](auto& all) { return Piece{all.data(), all.size(), Dtype::u8, Device::cpu}; };
  auto answer = channel.recv(Rank{0}, kReplyTag, piece_of(reply));
  const auto first = channel.send(Rank{0}, kRequestTag, piece_of(head)), second = channel.send(Rank{0}, kPayloadTag, piece_of(payload));
  const auto third = channel.send(Rank{0}, kRequestTag, piece_of(ask));
  answer.wait(Deadline::in(Seconds{60} * slowdown()));
  EXPECT_EQ(try_it(), 0) << "the other worker";
  return decode_reply(reply);
}

TEST(Server, TakesNoMemoryForWhatItRefuses) {
  const auto rows = [](Client& c) { return c.make_rows({.name = "rows", .width = 1U << 20, .rule = "sgd(lr=1)"}); };
  const std::uint64_t huge = std::uint64_t{1} << 35;
  for (const Request& request :
       {Request{.verb = Verb::push, .seq = 1, .count = 1, .payload = huge},
        Request{.verb = Verb::push, .table = 9, .seq = 1, .payload = huge}, Request{.verb = Verb::make, .table = 9, .payload = huge},
        Request{.verb = Verb::put, .count = 1, .payload = ~0ULL}})
    EXPECT_TRUE(told_after(request, 100'000, rows).failed) << static_cast<int>(request.verb);
}

// 2^14 rows of 2^20 elements are 64 GiB, and their ids 128 KiB.
TEST(Server, RefusesReadsOfMoreRowsThanAMessageHas) {
  const auto rows = [](Client& c) { return c.make_rows({.name = "rows", .width = 1U << 20, .rule = "sgd(lr=1)"}); };
  const std::uint64_t count = 1U << 14;
  const Reply reply = told_after({.verb = Verb::pull, .count = count, .payload = 8 * count}, 8 * count, rows);
  EXPECT_TRUE(reply.failed);
  EXPECT_THAT(reply.text, HasSubstr("fewer at a time"));
}

TEST(Server, RefusesRowsThatNoMessageHolds) {
  serve("loopback", 1, 1, [](Worker& w) {
    const auto table = w.client.make_rows({.name = "rows", .width = 1U << 29, .rule = "sgd(lr=1)"});
    std::vector<float> none;
    w.client.pull_rows(table, {}, none);
    EXPECT_THAT(failure_of([&] { w.client.wait(table); }).what, HasSubstr("rows of 536870912 elements"));
  });
}

TEST(RequestFailure, IsAlsoWhatTakesTooMuchMemory) {
  EXPECT_FALSE(failure_in([] {}).has_value());
  EXPECT_EQ(failure_in([] { throw_failure(Kind::usage, "no"); })->what, "no");
  EXPECT_EQ(failure_in([] { throw std::bad_alloc(); })->kind, Kind::system);
  EXPECT_EQ(failure_in([] { throw std::length_error("vector"); })->kind, Kind::system);
  EXPECT_THROW(failure_in([] { throw collective::Interrupted{{Kind::aborted, "stop"}}; }), collective::Interrupted);
}

// --- resumed runs

// Adam's first update moves by its rate, whatever the gradient: with the state of a later one it would not.
TEST(Client, BeginsAtAClockWithoutTheUpdatesBeforeIt) {
  for (const char* clock : {"bsp", "ssp(2)", "tap"})
    serve("loopback", 2, 1, [&](Worker& w) {
      const auto table = w.client.make({.name = "t", .count = 4, .rule = "adam(lr=0.5, eps=0)", .clock = clock});
      std::vector<float> gradient(4, -3), x(4);
      w.client.begin_at(table, 1000, 0);
      if (w.me == 0) w.client.push(table, piece(std::span(gradient)));
      if (w.me == 0) w.client.mark(table);
      if (w.me == 1 && make_gate(clock).ordered()) w.client.mark(table);
      if (w.me != 0) return w.comm.barrier();
      const Pulled pulled = w.client.pull_now(table, piece(std::span(x)));
      EXPECT_EQ(pulled.clock, 1001);
      EXPECT_NEAR(x[0], 0.5, 1e-6) << clock;
      w.comm.barrier();
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
