#include "cohort/net/tls.h"

#include <sys/socket.h>

#include "cohort/base/slowdown.h"
#include "cohort/net/conformance.h"
#include "cohort/net/door.h"
#include "cohort/net/tcp.h"
#include "cohort/net/wire.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct TlsTcp {
  static Meshes make(int ranks) { return tcp_meshes(ranks, {}, "auto", false, true); }
};
INSTANTIATE_TEST_SUITE_P(TlsTcp, Conformance, testing::Values(Factory{TlsTcp::make}));
struct TlsStreams {
  static Meshes make(int ranks) { return tcp_meshes(ranks, {}, "auto", false, true, 3); }
};
INSTANTIATE_TEST_SUITE_P(TlsStreams, Conformance, testing::Values(Factory{TlsStreams::make}));

Hello hello(int rank) { return {"t", Epoch{}, Rank{rank}, Role::worker}; }

// Both sides' errors when a dialer with one secret calls a listener with another.
struct Meeting {
  Error dialer, listener;
  double seconds = 0;
};
Meeting meet(const Secret& here, const Secret& there) {
  const Listener listener = listen_on({"127.0.0.1", 0}, here);
  Meeting out;
  const auto begin = Clock::now();
  auto dialer =
      std::async(std::launch::async, [&] { return failure_of([&] { Wire::connect(listener.address, there, hello(1), soon()); }); });
  Door door(listener, here, hello(0));
  while (dialer.wait_for(0s) != std::future_status::ready) EXPECT_FALSE(door.next(Deadline::in(10ms)));
  out.seconds = Seconds(Clock::now() - begin).count();
  out.dialer = dialer.get();
  out.listener.what = door.counts().last_refusal;
  return out;
}

TEST(Tls, APlainPeerIsToldToUseItWithinASecond) {
  Secret plain = Secret::random(), guarded = plain;
  guarded.use_tls(true);
  const Meeting plain_calls = meet(guarded, plain);
  EXPECT_THAT(plain_calls.dialer.what, AllOf(HasSubstr("speaks TLS"), HasSubstr("--tls")));
  EXPECT_THAT(plain_calls.listener.what, AllOf(HasSubstr("without TLS"), HasSubstr("--tls")));
  EXPECT_LT(plain_calls.seconds, slowdown());
  const Meeting plain_listens = meet(plain, guarded);
  EXPECT_THAT(plain_listens.dialer.what, AllOf(HasSubstr("without TLS"), HasSubstr("--tls")));
  EXPECT_THAT(plain_listens.listener.what, AllOf(HasSubstr("speaks TLS"), HasSubstr("--tls")));
  EXPECT_LT(plain_listens.seconds, slowdown());
}

TEST(Tls, AnotherSecretOpensNothing) {
  Secret one = Secret::random(), other = Secret::random();
  const Meeting met = meet(one.use_tls(true), other.use_tls(true));
  EXPECT_THAT(met.dialer.what, HasSubstr("another job secret"));
  EXPECT_THAT(met.listener.what, HasSubstr("another job secret"));
  EXPECT_LT(met.seconds, slowdown());
}

struct Pair {
  Pair() {
    const Secret secret = Secret::random().use_tls(true);
    const Listener listener = listen_on({"127.0.0.1", 0}, secret);
    auto dialer = std::async(std::launch::async, [&] { return Wire::connect(listener.address, secret, hello(1), soon()); });
    here.emplace(Wire::accept(accept_one(listener, soon()), secret, hello(0), soon()));
    there.emplace(dialer.get());
  }
  std::optional<Wire> here, there;
};

TEST(Tls, CarriesControlFramesAndLeavesNothingBehindOne) {
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
  IoResult a{Io::later}, b{Io::later};
  for (int turns = 0; turns < 10 && (a.state != Io::moved || b.state != Io::moved); ++turns) {
    if (a.state == Io::later) a = dialer.shake();
    if (b.state == Io::later) b = listener.shake();
  }
  ASSERT_TRUE(a.state == Io::moved && b.state == Io::moved) << dialer.why() << " | " << listener.why();
  std::string words(5000, 'x');
  const iovec part{words.data(), words.size()};
  ASSERT_EQ(dialer.write({&part, 1}).bytes, words.size());
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
  EXPECT_EQ(r.state, Io::closed);
  EXPECT_EQ(r.problem, EBADMSG);
}

TEST(Tls, AnAlteredStreamFailsTheLinkAsCorruptAndNamesTheRank) {
  const Secret secret = Secret::random().use_tls(true);
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  auto dialer = std::async(std::launch::async, [&] { return Wire::connect(listener.address, secret, hello(1), soon()); });
  std::vector<std::optional<Wire>> wires(2);
  wires[1] = Wire::accept(accept_one(listener, soon()), secret, hello(0), soon());
  const Wire hand = dialer.get();
  const auto mesh = tcp_mesh({Rank{0}, Epoch{}, std::move(wires), "auto", false});
  const std::string record = std::string("\x17\x03\x03\x00\x40", 5) + std::string(64, 'y');  // looks like application data
  ASSERT_EQ(::send(hand.fd(), record.data(), record.size(), MSG_NOSIGNAL), static_cast<ssize_t>(record.size()));
  std::vector<std::byte> buffer(4);
  const Error error = failure_of([&] { mesh->link(Rank{1}).recv(buffer, {0, 1}).wait(soon()); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("altered")));
}

}  // namespace
}  // namespace cohort::net
