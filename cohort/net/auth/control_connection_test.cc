#include "cohort/net/auth/control_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>

#include "cohort/base/slowdown.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/auth/testing.h"

namespace cohort::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Pair {
  explicit Pair(const std::string& at = "127.0.0.1:0") : listener(listen_on(Address::parse(at), secret)) {
    auto dialer =
        std::async(std::launch::async, [this] { return ControlConnection::connect(listener.address, secret, test_hello(1), soon()); });
    zero.emplace(ControlConnection::accept(accept_one(listener, soon()), secret, test_hello(0), soon()));
    one.emplace(dialer.get());
  }
  Secret secret = Secret::random();
  Listener listener;
  std::optional<ControlConnection> zero, one;
};

class ControlConnections : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(On, ControlConnections, testing::Values("127.0.0.1:0", "[::1]:0", "unix:@cohort-connection-test"));

TEST_P(ControlConnections, CarryFramesBothWaysInOrder) {
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

TEST(ControlConnection, CarriesABodyUpToTheCap) {
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

TEST(ControlConnection, GoesOnAfterATimeout) {
  Pair p;
  const Error error = failure_of([&] { p.zero->recv(Deadline::in(20ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("rank 1"));
  p.one->send(3, as_bytes("late"), soon());
  EXPECT_EQ(p.zero->recv(soon()).type, 3);
}

TEST(ControlConnection, NamesThePeerThatClosed) {
  Pair p;
  p.one.reset();
  const Error error = failure_of([&] { p.zero->recv(soon()); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("127.0.0.1")));
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).what, error.what);
}

TEST(ControlConnection, BreaksOnInvalidBytes) {
  Pair p;
  const std::string junk(200, 'j');
  ASSERT_EQ(::send(p.one->fd(), junk.data(), junk.size(), MSG_NOSIGNAL), 200);
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).kind, Kind::corrupt) << "and stays broken";
}

TEST(ControlConnection, WaitsForAListenerThatComesLate) {
  const Secret secret = Secret::random();
  const Address address = listen_on({"127.0.0.1", 0}, secret).address;  // free again at once
  auto dialer = std::async(std::launch::async, [&] { return ControlConnection::connect(address, secret, test_hello(1), soon()); });
  EXPECT_EQ(dialer.wait_for(50ms), std::future_status::timeout);
  const Listener listener = listen_on(address, secret);
  const ControlConnection zero = ControlConnection::accept(accept_one(listener, soon()), secret, test_hello(0), soon());
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

TEST(ControlConnection, ReportsWhyTheAttemptsFailed) {
  const Secret secret = Secret::random();
  const Address address = listen_on({"127.0.0.1", 0}, secret).address;
  const Error error = failure_of([&] { ControlConnection::connect(address, secret, test_hello(1), Deadline::in(50ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, AllOf(HasSubstr(address.text()), HasSubstr("Connection refused")));
}

TEST(ControlConnection, ReportsAnotherSecretWithinASecond) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  auto dialer = std::async(std::launch::async, [&] {
    return failure_of([&] { ControlConnection::connect(listener.address, Secret::random(), test_hello(1), soon()); });
  });
  const auto begin = Clock::now();
  while (dialer.wait_for(0s) != std::future_status::ready) EXPECT_FALSE(acceptor.next(Deadline::in(10ms)));
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
  const Error error = dialer.get();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("another job secret"));
  EXPECT_THAT(acceptor.counts().last_refusal, HasSubstr("does not know this job's secret"));
}

TEST(ControlConnection, ReportsAnotherVersionWithinASecond) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Fd other = raw_connection(listener.address);
  std::vector<char> opening(Handshake::kOpening);
  std::copy_n("COHO\x02\x00", 6, opening.begin());
  ASSERT_EQ(::send(other.get(), opening.data(), opening.size(), 0), 40);
  const auto begin = Clock::now();
  const Error error = failure_of([&] { ControlConnection::accept(accept_one(listener, soon()), secret, test_hello(0), soon()); });
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
  EXPECT_THAT(error.what, AllOf(HasSubstr("version 2"), HasSubstr("speaks 1")));
  EXPECT_EQ(::recv(other.get(), opening.data(), opening.size(), MSG_WAITALL), 40) << "it is sent our version";
  EXPECT_EQ(opening[4], 1);
}

TEST(ControlConnection, GivesAnUnauthenticatedPeerItsDeadlineAndNoMore) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Fd silent = raw_connection(listener.address);
  const Error error =
      failure_of([&] { ControlConnection::accept(accept_one(listener, soon()), secret, test_hello(0), Deadline::in(50ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("handshake"));
}

}  // namespace
}  // namespace cohort::net
