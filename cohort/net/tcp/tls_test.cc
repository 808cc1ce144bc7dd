#include "cohort/net/socket/tls.h"

#include <sys/socket.h>

#include "cohort/base/slowdown.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/tcp/tcp.h"
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct TlsTcp {
  static AllPeerLinks make(int ranks) { return tcp_world(ranks, {}, "auto", false, true); }
};
INSTANTIATE_TEST_SUITE_P(TlsTcp, Conformance, testing::Values(Factory{TlsTcp::make}));
struct TlsStreams {
  static AllPeerLinks make(int ranks) { return tcp_world(ranks, {}, "auto", false, true, 3); }
};
INSTANTIATE_TEST_SUITE_P(TlsStreams, Conformance, testing::Values(Factory{TlsStreams::make}));

Hello hello(int rank) { return {"t", Epoch{}, Rank{rank}, Role::worker}; }

// Both sides' errors when a dialer with one secret connects to a listener with another.
struct Attempt {
  Error dialer, listener;
  double seconds = 0;
};
Attempt attempt(const Secret& here, const Secret& there) {
  const Listener listener = listen_on({"127.0.0.1", 0}, here);
  Attempt out;
  const auto begin = Clock::now();
  auto dialer = std::async(std::launch::async,
                           [&] { return failure_of([&] { ControlConnection::connect(listener.address, there, hello(1), soon()); }); });
  Acceptor acceptor(listener, here, hello(0));
  while (dialer.wait_for(0s) != std::future_status::ready) EXPECT_FALSE(acceptor.next(Deadline::in(10ms)));
  out.seconds = Seconds(Clock::now() - begin).count();
  out.dialer = dialer.get();
  out.listener.what = acceptor.counts().last_refusal;
  return out;
}

TEST(Tls, APlainPeerIsToldToUseItWithinASecond) {
  Secret plain = Secret::random(), encrypted = plain;
  encrypted.use_tls(true);
  const Attempt plain_dials = attempt(encrypted, plain);
  EXPECT_THAT(plain_dials.dialer.what, AllOf(HasSubstr("speaks TLS"), HasSubstr("--tls")));
  EXPECT_THAT(plain_dials.listener.what, AllOf(HasSubstr("without TLS"), HasSubstr("--tls")));
  EXPECT_LT(plain_dials.seconds, slowdown());
  const Attempt plain_listens = attempt(plain, encrypted);
  EXPECT_THAT(plain_listens.dialer.what, AllOf(HasSubstr("without TLS"), HasSubstr("--tls")));
  EXPECT_THAT(plain_listens.listener.what, AllOf(HasSubstr("speaks TLS"), HasSubstr("--tls")));
  EXPECT_LT(plain_listens.seconds, slowdown());
}

TEST(Tls, AnotherSecretIsRefused) {
  Secret one = Secret::random(), other = Secret::random();
  const Attempt failed = attempt(one.use_tls(true), other.use_tls(true));
  EXPECT_THAT(failed.dialer.what, HasSubstr("another job secret"));
  EXPECT_THAT(failed.listener.what, HasSubstr("another job secret"));
  EXPECT_LT(failed.seconds, slowdown());
}

struct Pair {
  Pair() {
    const Secret secret = Secret::random().use_tls(true);
    const Listener listener = listen_on({"127.0.0.1", 0}, secret);
    auto dialer = std::async(std::launch::async, [&] { return ControlConnection::connect(listener.address, secret, hello(1), soon()); });
    here.emplace(ControlConnection::accept(accept_one(listener, soon()), secret, hello(0), soon()));
    there.emplace(dialer.get());
  }
  std::optional<ControlConnection> here, there;
};

TEST(Tls, CarriesControlFramesAndBuffersNothingBetweenThem) {
  Pair pair;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, 40_KiB, std::size_t{1_MiB}}) {
    const auto body = pattern(size, 7);
    auto sent = std::async(std::launch::async, [&] { pair.there->send(9, body, soon()); });
    EXPECT_EQ(pair.here->recv(soon()).body, body);
    EXPECT_FALSE(pair.here->readable());
    sent.get();
  }
}

TEST(Tls, ShowsNothingOfWhatItCarries) {
  const Secret secret = Secret::random().use_tls(true);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Fd left(ends[0]), right(ends[1]);
  Tls dialer(left.get(), Tls::Side::dialer, secret), listener(right.get(), Tls::Side::listener, secret);
  IoResult a{IoState::later}, b{IoState::later};
  for (int turns = 0; turns < 10 && (a.state != IoState::moved || b.state != IoState::moved); ++turns) {
    if (a.state == IoState::later) a = dialer.handshake();
    if (b.state == IoState::later) b = listener.handshake();
  }
  ASSERT_TRUE(a.state == IoState::moved && b.state == IoState::moved) << dialer.why() << " | " << listener.why();
  std::string plain(5000, 'x');
  const iovec part{plain.data(), plain.size()};
  ASSERT_EQ(dialer.write({&part, 1}).bytes, plain.size());
  std::string seen(10000, '\0');
  const ssize_t n = recv(right.get(), seen.data(), seen.size(), MSG_PEEK);
  ASSERT_GT(n, 5000);
  EXPECT_EQ(seen.find("xxxx"), std::string::npos);
  seen[100] = static_cast<char>(seen[100] ^ 1);
  // The same bytes with one bit changed, in their place.
  std::string drain(10000, '\0');
  ASSERT_EQ(recv(right.get(), drain.data(), drain.size(), 0), n);
  ASSERT_EQ(send(left.get(), seen.data(), static_cast<std::size_t>(n), 0), n);
  std::string got(5000, '\0');
  const iovec into{got.data(), got.size()};
  const IoResult r = listener.read({&into, 1});
  EXPECT_EQ(r.state, IoState::closed);
  EXPECT_EQ(r.problem, EBADMSG);
}

TEST(Tls, AnAlteredStreamFailsTheLinkAsCorruptAndNamesTheRank) {
  const Secret secret = Secret::random().use_tls(true);
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  auto dialer = std::async(std::launch::async, [&] { return ControlConnection::connect(listener.address, secret, hello(1), soon()); });
  std::vector<std::optional<ControlConnection>> connections(2);
  connections[1] = ControlConnection::accept(accept_one(listener, soon()), secret, hello(0), soon());
  const ControlConnection hand = dialer.get();
  const auto links = tcp_peer_links({Rank{0}, Epoch{}, std::move(connections), "auto", false});
  std::string record("\x17\x03\x03\x00\x40", 5);  // looks like application data
  record.append(64, 'y');
  ASSERT_EQ(::send(hand.fd(), record.data(), record.size(), MSG_NOSIGNAL), static_cast<ssize_t>(record.size()));
  std::vector<std::byte> buffer(4);
  const Error error = failure_of([&] { links->link(Rank{1}).recv(buffer, {0, 1}).wait(soon()); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("altered")));
}

}  // namespace
}  // namespace cohort::net
