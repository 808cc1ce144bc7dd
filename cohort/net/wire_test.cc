#include "cohort/net/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/slowdown.h"
#include "cohort/net/door.h"
#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Deadline soon() { return Deadline::in(20s); }
Hello hello(int rank) { return {"wires", Epoch{1}, Rank{rank}, Role::worker}; }

Error failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& f) {
    return f.error();
  }
  return {Kind::bug, "no failure", kNoRank};
}

// A plain socket of somebody who is no peer.
Fd raw_connection(const Address& to) {
  const SocketAddress where = SocketAddress::of(to);
  Fd fd{::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(fd.get(), where.get(), where.length) != 0) throw_system("connect");
  return fd;
}

struct Pair {
  explicit Pair(const std::string& at = "127.0.0.1:0") : listener(listen_on(Address::parse(at), secret)) {
    auto dialer = std::async(std::launch::async, [this] { return Wire::connect(listener.address, secret, hello(1), soon()); });
    zero.emplace(Wire::accept(accept_one(listener, soon()), secret, hello(0), soon()));
    one.emplace(dialer.get());
  }
  Secret secret = Secret::random();
  Listener listener;
  std::optional<Wire> zero, one;
};

class Wires : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(On, Wires, testing::Values("127.0.0.1:0", "[::1]:0", "unix:@cohort-wire-test"));

TEST_P(Wires, CarryFramesBothWaysInOrder) {
  Pair p(GetParam());
  EXPECT_EQ(p.zero->peer().rank, Rank{1});
  EXPECT_EQ(p.one->peer().rank, Rank{0});
  EXPECT_FALSE(p.zero->readable());
  for (std::uint16_t i = 1; i < 100; ++i) p.one->send(i, as_bytes(std::string(i, 'x')), soon());
  p.zero->send(5, as_bytes("back"), soon());
  EXPECT_TRUE(p.one->readable());
  for (std::uint16_t i = 1; i < 100; ++i) {
    const Frame frame = p.zero->recv(soon());
    EXPECT_EQ(frame.type, i);
    EXPECT_EQ(frame.body.size(), i);
  }
  EXPECT_TRUE(std::ranges::equal(p.one->recv(soon()).body, as_bytes("back")));
}

TEST(Wire, CarriesABodyUpToTheCap) {
  Pair p;
  const std::vector<std::byte> body(kControlCap, std::byte{7});
  auto sender = std::async(std::launch::async, [&] { p.one->send(1, body, soon()); });
  EXPECT_EQ(p.zero->recv(soon()).body, body);
  sender.get();
  const std::vector<std::byte> more(kControlCap + 1);
  EXPECT_EQ(failure_of([&] { p.one->send(1, more, soon()); }).kind, Kind::usage);
  p.one->send(2, {}, soon());
  EXPECT_EQ(p.zero->recv(soon()).type, 2);
}

TEST(Wire, GoesOnAfterATimeout) {
  Pair p;
  const Error error = failure_of([&] { p.zero->recv(Deadline::in(20ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("rank 1"));
  p.one->send(3, as_bytes("late"), soon());
  EXPECT_EQ(p.zero->recv(soon()).type, 3);
}

TEST(Wire, NamesThePeerThatClosed) {
  Pair p;
  p.one.reset();
  const Error error = failure_of([&] { p.zero->recv(soon()); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("127.0.0.1")));
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).what, error.what);
}

TEST(Wire, BreaksOnForeignBytes) {
  Pair p;
  const std::string junk(200, 'j');
  ASSERT_EQ(::send(p.one->fd(), junk.data(), junk.size(), MSG_NOSIGNAL), 200);
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).kind, Kind::corrupt) << "and stays broken";
}

TEST(Wire, WaitsForAListenerThatComesLate) {
  const Secret secret = Secret::random();
  const Address place = listen_on({"127.0.0.1", 0}, secret).address;  // free again at once
  auto dialer = std::async(std::launch::async, [&] { return Wire::connect(place, secret, hello(1), soon()); });
  EXPECT_EQ(dialer.wait_for(50ms), std::future_status::timeout);
  const Listener listener = listen_on(place, secret);
  const Wire zero = Wire::accept(accept_one(listener, soon()), secret, hello(0), soon());
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

TEST(Wire, SaysWhyNobodyAnswered) {
  const Secret secret = Secret::random();
  const Address place = listen_on({"127.0.0.1", 0}, secret).address;
  const Error error = failure_of([&] { Wire::connect(place, secret, hello(1), Deadline::in(50ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, AllOf(HasSubstr(place.text()), HasSubstr("Connection refused")));
}

TEST(Wire, TellsTheOwnerOfAnotherSecretWithinASecond) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  auto dialer = std::async(std::launch::async,
                           [&] { return failure_of([&] { Wire::connect(listener.address, Secret::random(), hello(1), soon()); }); });
  const auto begin = Clock::now();
  while (dialer.wait_for(0s) != std::future_status::ready) EXPECT_FALSE(door.next(Deadline::in(10ms)));
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
  const Error error = dialer.get();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("another job secret"));
  EXPECT_THAT(door.counts().last_refusal, HasSubstr("does not know this job's secret"));
}

TEST(Wire, TellsAnotherVersionWithinASecond) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Fd other = raw_connection(listener.address);
  std::vector<char> opening(Handshake::kOpening);
  std::copy_n("COHO\x02\x00", 6, opening.begin());
  ASSERT_EQ(::send(other.get(), opening.data(), opening.size(), 0), 40);
  const auto begin = Clock::now();
  const Error error = failure_of([&] { Wire::accept(accept_one(listener, soon()), secret, hello(0), soon()); });
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
  EXPECT_THAT(error.what, AllOf(HasSubstr("version 2"), HasSubstr("speaks 1")));
  EXPECT_EQ(::recv(other.get(), opening.data(), opening.size(), MSG_WAITALL), 40) << "it learns our version";
  EXPECT_EQ(opening[4], 1);
}

TEST(Wire, GivesAStrangerItsDeadlineAndNoMore) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Fd silent = raw_connection(listener.address);
  const Error error = failure_of([&] { Wire::accept(accept_one(listener, soon()), secret, hello(0), Deadline::in(50ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("handshake"));
}

TEST(Listen, NeedsASecretBeyondLoopback) {
  for (const char* place : {"0.0.0.0:0", "[::]:0"}) {
    const Error error = failure_of([&] { listen_on(Address::parse(place), {}); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("without a job secret"));
    EXPECT_NO_THROW(listen_on(Address::parse(place), Secret::random()));
  }
  for (const char* place : {"127.0.0.1:0", "localhost:0", "[::1]:0", "unix:@cohort-listen-test"})
    EXPECT_NO_THROW(listen_on(Address::parse(place), {}));
}

TEST(Listen, SaysWhenThePlaceIsTaken) {
  const Listener first = listen_on({"127.0.0.1", 0}, {});
  EXPECT_NE(first.address.port, 0);
  EXPECT_THAT(failure_of([&] { listen_on(first.address, {}); }).what, AllOf(HasSubstr(first.address.text()), HasSubstr("in use")));
}

TEST(Listen, GivesNothingWhenNobodyCalls) {
  const Listener listener = listen_on({"127.0.0.1", 0}, {});
  EXPECT_FALSE(accept_one(listener, Deadline::in(10ms)));
}

TEST(Door, LetsManyInWhileStrangersCrowdIt) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < 2 * Door::kStrangers; ++i) strangers.push_back(raw_connection(listener.address));
  std::vector<std::future<Wire>> dialers;
  for (int r = 1; r <= 8; ++r)
    dialers.push_back(std::async(std::launch::async, [&, r] { return Wire::connect(listener.address, secret, hello(r), soon()); }));
  Door door(listener, secret, hello(0));
  std::set<int> came;
  std::vector<Wire> wires;
  while (came.size() < 8) {
    auto wire = door.next(soon());
    ASSERT_TRUE(wire);
    came.insert(wire->peer().rank.value);
    wires.push_back(std::move(*wire));
  }
  for (auto& d : dialers) EXPECT_EQ(d.get().peer().rank, Rank{0});
  EXPECT_EQ(door.counts().admitted, 8U);
  EXPECT_GE(door.counts().refused, Door::kStrangers);
}

}  // namespace
}  // namespace cohort::net
