#include "cohort/net/tcp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>

#include "cohort/net/frame/frame.h"
#include "cohort/net/tcp/receive_stream.h"
#include "cohort/net/tcp/send_stream.h"
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Tcp {
  static AllPeerLinks make(int ranks) { return tcp_world(ranks); }
};
INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, testing::Values(Factory{Tcp::make}));

// As between hosts: blocks carry checksums, large ones use MSG_ZEROCOPY until the kernel reports that it copies.
struct FarTcp {
  static AllPeerLinks make(int ranks) { return tcp_world(ranks, {}, "auto", true); }
};
INSTANTIATE_TEST_SUITE_P(FarTcp, Conformance, testing::Values(Factory{FarTcp::make}));

// Rank 0 is a PeerLinks; of rank 1 there is only the connection, past the handshake.
struct HalfConnected {
  HalfConnected() {
    const Secret secret = Secret::random();
    const Listener listener = listen_on({"127.0.0.1", 0}, secret);
    auto dialer = std::async(std::launch::async, [&] {
      return ControlConnection::connect(listener.address, secret, {"t", Epoch{}, Rank{1}, Role::worker}, soon());
    });
    std::vector<std::optional<ControlConnection>> connections(2);
    connections[1] = ControlConnection::accept(accept_one(listener, soon()), secret, {"t", Epoch{}, Rank{0}, Role::worker}, soon());
    peer.emplace(dialer.get());
    links = tcp_peer_links({Rank{0}, Epoch{}, std::move(connections), "auto", false});
  }
  void send(ConstBytes bytes) const {
    ASSERT_EQ(::send(peer->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  Error ending(std::size_t size = 4) const {
    std::vector<std::byte> buffer(size);
    return failure_of([&] { links->link(Rank{1}).recv(buffer, {0, 1}).wait(soon()); });
  }
  std::optional<ControlConnection> peer;
  std::unique_ptr<PeerLinks> links;
};

std::vector<std::byte> framed(std::uint16_t type, std::uint64_t sequence, std::string_view body, std::uint8_t flags = 0,
                              std::uint32_t check = 0) {
  const HeaderBytes header = encode_header({.type = type, .flags = flags, .length = body.size(), .tag = {0, 1}, .sequence = sequence});
  const TrailerBytes trailer = good_trailer(check);
  std::vector<std::byte> out(encoded_bytes(body.size()));
  auto end = std::ranges::copy(header, out.begin()).out;
  end = std::ranges::copy(as_bytes(body), end).out;
  if (!body.empty()) std::ranges::copy(trailer, end);
  return out;
}

TEST(TcpTransport, TakesAnEndWithoutAGoodbyeForADeath) {
  HalfConnected half;
  half.peer.reset();
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("died")));
}

TEST(TcpTransport, TakesADeathInTheMiddleOfAMessageForADeath) {
  HalfConnected half;
  half.send(ConstBytes(framed(kDataFrame, 0, std::string(100, 'x'))).first(90));
  half.peer.reset();
  EXPECT_EQ(half.ending(100).kind, Kind::peer_lost);
}

TEST(TcpTransport, RefusesForeignBytesAndNamesTheRank) {
  HalfConnected half;
  half.send(as_bytes(std::string(100, 'j')));
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("rank 1"));
}

TEST(TcpTransport, RefusesAFrameThatCameTwice) {
  HalfConnected half;
  for (int i = 0; i < 2; ++i) half.send(framed(kDataFrame, 0, "four"));
  EXPECT_EQ(recv_now(*half.links, 1, 4, {0, 1}).size(), 4U);
  EXPECT_THAT(half.ending().what, HasSubstr("replayed"));
}

TEST(TcpTransport, RefusesABlockThatDoesNotMatchItsChecksum) {
  HalfConnected half;
  half.send(framed(kDataFrame, 0, "four", kChecksumFlag, crc32c(as_bytes("four"))));
  EXPECT_EQ(recv_now(*half.links, 1, 4, {0, 1}).size(), 4U);
  half.send(framed(kDataFrame, 1, "fore", kChecksumFlag, crc32c(as_bytes("four"))));
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("checksum")));
}

// An abort must get through although a message is sent in part and its buffer may not be read any more.
TEST(TcpTransport, SendsTheReasonOfAnAbortInTheMiddleOfALargeMessage) {
  AllPeerLinks world = tcp_world(2);
  const auto data = pattern(64_MiB, 1);
  auto sending = world[0]->link(Rank{1}).send(data, {0, 1});
  ASSERT_FALSE(sending.poll()) << "64 MiB must not fit into socket buffers";
  world[0]->abort({Kind::usage, "loss is not a number", Rank{0}});
  EXPECT_EQ(failure_of([&] { sending.wait(soon()); }).what, "loss is not a number");
  const Error error = failure_of([&] { recv_now(*world[1], 0, 64_MiB, {0, 1}); });
  EXPECT_EQ(error.kind, Kind::aborted) << error.what;
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 0"), HasSubstr("loss is not a number")));
}

TEST(TcpTransport, ReportsACancelledSendToThePeer) {
  AllPeerLinks world = tcp_world(2);
  const auto data = pattern(64_MiB, 1);
  EXPECT_EQ(failure_of([&] { world[0]->link(Rank{1}).send(data, {0, 1}).wait(Deadline::in(50ms)); }).kind, Kind::timeout);
  const Error error = failure_of([&] { recv_now(*world[1], 0, 64_MiB, {0, 1}); });
  EXPECT_EQ(error.kind, Kind::aborted) << error.what;
  EXPECT_THAT(error.what, HasSubstr("gave up a send of 67108864 bytes"));
}

// More than the sockets hold, and collectives' messages stay in a socket until their receive is posted: but not for ever.
TEST(TcpTransport, FinishesLargeSendsOfBothSidesBeforeEitherReceives) {
  AllPeerLinks world = tcp_world(2);
  const Tag tag{0, kCollectiveTags};
  on_all_ranks(world, [&](PeerLinks& links) {
    const int other = 1 - links.rank().value;
    const auto mine = pattern(3_MiB, static_cast<unsigned>(links.rank().value));
    for (int i = 0; i < 3; ++i) send_now(links, other, mine, tag);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(recv_now(links, other, mine.size(), tag) == pattern(mine.size(), static_cast<unsigned>(other)));
  });
}

// The beginning of a collective's message whose receive is not posted: it is held back, and with it all that comes behind.
void hold_back(const HalfConnected& half, bool all) {
  auto frame = framed(kDataFrame, 0, std::string(200'000, 'x'));
  const HeaderBytes header = encode_header({.type = kDataFrame, .flags = 0, .length = 200'000, .tag = {0, kCollectiveTags}, .sequence = 0});
  std::ranges::copy(header, frame.begin());
  half.send(ConstBytes(frame).first(all ? frame.size() : 1000));
}

TEST(TcpTransport, DetectsADeathBehindAMessageThatIsHeldBack) {
  HalfConnected half;
  hold_back(half, false);
  EXPECT_EQ(failure_of([&] { half.links->link(Rank{0}).recv({}, {0, 5}).wait(Deadline::in(20ms)); }).kind, Kind::timeout);
  std::promise<Error> reported;
  half.links->watch([&](Rank, const Error& error) { reported.set_value(error); });
  half.peer.reset();
  auto failure = reported.get_future();
  ASSERT_EQ(failure.wait_for(30s), std::future_status::ready) << "while nobody waits for that peer";
  EXPECT_EQ(failure.get().kind, Kind::peer_lost);
}

TEST(TcpTransport, DetectsAnAbortBehindAMessageThatIsHeldBack) {
  HalfConnected half;
  hold_back(half, true);
  half.send(framed(kAbortFrame, 1, std::string("\0\0\0\0why", 7)));
  std::byte never;
  auto waits = half.links->link(Rank{0}).recv({&never, 1}, {0, 5});  // on another peer, as far as rank 1 is concerned
  for (const Deadline limit = soon(); !half.links->failure(Rank{1}) && !limit.passed();) waits.wait_until(Deadline::in(50ms));
  ASSERT_TRUE(half.links->failure(Rank{1}));
  EXPECT_THAT(half.links->failure(Rank{1})->what, HasSubstr("why"));
}

TEST(TcpTransport, WaitsLongerThanAnyTimerForABusyPeer) {
  AllPeerLinks world = tcp_world(2);
  const auto data = pattern(32_MiB, 1);
  auto sending = std::async(std::launch::async, [&] { send_now(*world[0], 1, data, {0, 1}); });
  EXPECT_EQ(sending.wait_for(4s), std::future_status::timeout);  // longer than kDeadHost with a closed window
  EXPECT_TRUE(recv_now(*world[1], 0, data.size(), {0, 1}) == data);
  sending.get();
}

TEST(TcpTransport, SetsTheCongestionControlThatWasAskedFor) {
  const Fd fd{::socket(AF_INET, SOCK_STREAM, 0)};
  EXPECT_EQ(set_congestion(fd.get(), "reno"), "reno");
  EXPECT_THAT(set_congestion(fd.get(), "auto"), testing::AnyOf("cubic", "reno"));
  EXPECT_THAT(failure_of([&] { set_congestion(fd.get(), "pigeon"); }).what, HasSubstr("'pigeon' is not available"));
}

std::string congestion_of(int fd) {
  char name[32] = {};
  socklen_t size = sizeof name;
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 ? name : "none";
}

// Pacing sticks to a connection that was created with it, whatever is set later.
TEST(ControlConnection, IsCreatedUnderCubicOnBothSidesWhereTheKernelHasIt) {
  const Fd plain{::socket(AF_INET, SOCK_STREAM, 0)};
  const std::string systems = congestion_of(plain.get());
  const bool has_cubic = setsockopt(plain.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0;
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  auto dialer = std::async(std::launch::async, [&] {
    return ControlConnection::connect(listener.address, secret, {"t", Epoch{}, Rank{1}, Role::worker}, soon());
  });
  const ControlConnection accepted =
      ControlConnection::accept(accept_one(listener, soon()), secret, {"t", Epoch{}, Rank{0}, Role::worker}, soon());
  const ControlConnection dialed = dialer.get();
  EXPECT_EQ(congestion_of(accepted.fd()), has_cubic ? "cubic" : systems);
  EXPECT_EQ(congestion_of(dialed.fd()), has_cubic ? "cubic" : systems);
}

// ---- the two halves of a stream, without sockets between ranks

TEST(ReceiveStream, FindsMessagesHoweverTheStreamIsCut) {
  std::vector<std::byte> stream;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::string body(i * i * 31, static_cast<char>('a' + i));
    const auto frame = framed(kDataFrame, i, body, kChecksumFlag, crc32c(as_bytes(body)));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  const auto bye = framed(kGoodbyeFrame, 20, "");
  stream.insert(stream.end(), bye.begin(), bye.end());
  for (const std::size_t piece : {1UL, 7UL, 1000UL, stream.size()}) {
    Mailbox mailbox(Rank{0}, 2);
    ReceiveStream in(mailbox, Rank{1});
    ReceiveStream::Pull last;
    for (std::size_t at = 0; at < stream.size(); at += piece)
      last = in.feed(ConstBytes(stream).subspan(at, std::min(piece, stream.size() - at)));
    EXPECT_EQ(last.end, ReceiveStream::End::goodbye) << last.text;
    for (std::size_t i = 0; i < 20; ++i) {
      const auto message = mailbox.take({0, 0, 9});
      ASSERT_TRUE(message);
      EXPECT_EQ(message->bytes.size(), i * i * 31);
    }
  }
}

TEST(ReceiveStream, DropsAMessageWithAVoidTrailerAndReadsOn) {
  Mailbox mailbox(Rank{0}, 2);
  ReceiveStream in(mailbox, Rank{1});
  auto cut = framed(kDataFrame, 0, "cut off");
  const TrailerBytes trailer = void_trailer();
  std::copy(trailer.begin(), trailer.end(), cut.end() - kTrailerBytes);
  EXPECT_EQ(in.feed(cut).end, ReceiveStream::End::none);
  const ReceiveStream::Pull end = in.feed(framed(kAbortFrame, 1, std::string("\0\0\0\0why", 7)));
  EXPECT_EQ(end.end, ReceiveStream::End::aborted);
  EXPECT_THAT(end.text, testing::EndsWith("why"));
  EXPECT_FALSE(mailbox.take({0, 0, 9}));
}

// However much of a message is sent when its sender must stop, the peer finds the next frame, and never takes padding for data.
TEST(SendStream, CanStopAfterAnyByteOfAMessage) {
  const auto data = pattern(2 * kBlockBytes + 100, 3);
  std::vector<std::byte> frame;
  const HeaderBytes header =
      encode_header({.type = kDataFrame, .flags = kChecksumFlag, .length = data.size(), .tag = {0, 1}, .sequence = 0});
  frame.insert(frame.end(), header.begin(), header.end());
  std::vector<std::uint32_t> checks;
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    const ConstBytes block = ConstBytes(data).subspan(at, std::min(kBlockBytes, data.size() - at));
    checks.push_back(crc32c(block));
    const TrailerBytes trailer = good_trailer(checks.back());
    frame.insert(frame.end(), block.begin(), block.end());
    frame.insert(frame.end(), trailer.begin(), trailer.end());
  }
  ASSERT_EQ(frame.size(), encoded_bytes(data.size()));
  const std::size_t stride = kBlockBytes + kTrailerBytes;
  for (const std::size_t around : {std::size_t{20}, kHeaderBytes + stride, kHeaderBytes + 2 * stride, frame.size() - 10}) {
    for (std::size_t sent = around - 10; sent <= around + 10; ++sent) {
      Mailbox mailbox(Rank{0}, 2);
      ReceiveStream in(mailbox, Rank{1});
      const std::size_t block = sent < kHeaderBytes ? 0 : std::min<std::size_t>((sent - kHeaderBytes) / stride, 2);
      in.feed(ConstBytes(frame).first(sent));
      EXPECT_EQ(in.feed(void_rest(header, data.size(), sent, checks[block])).end, ReceiveStream::End::none) << sent;
      EXPECT_EQ(in.feed(framed(kGoodbyeFrame, 1, "")).end, ReceiveStream::End::goodbye) << sent;
      EXPECT_EQ(mailbox.take({0, 0, 9}).has_value(), sent > frame.size() - kTrailerBytes) << sent;
    }
  }
}

TEST(SendStream, ReportsABrokenConnectionWithoutASignalEveryTime) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const Fd writer{fds[0]};
  Fd{fds[1]}.reset();
  struct sigaction before {};
  struct sigaction deadly {};
  deadly.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &deadly, &before);
  const auto data = pattern(1_MiB, 1);
  SendStream out(writer.get(), Rank{1}, false);
  SendStream::Push pushed;
  const auto sending = out.begin(data, {0, 1}, pushed);  // its result is not checked
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(out.waiting());
    EXPECT_TRUE(out.push().broken);
  }
  out.drop();
  EXPECT_FALSE(out.waiting());
  sigaction(SIGPIPE, &before, nullptr);
}

TEST(SendStream, SendsOneLastFrameThroughAFullSocket) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const Fd writer{fds[0]}, reader{fds[1]};
  const auto data = pattern(3_MiB + 5, 3);
  SendStream out(writer.get(), Rank{1}, true);
  Mailbox mailbox(Rank{0}, 2);
  ReceiveStream in(mailbox, Rank{1});
  SendStream::Push pushed;
  std::vector<std::shared_ptr<Sending>> sendings;
  for (std::uint32_t i = 0; i < 3; ++i) sendings.push_back(out.begin(data, {0, i}, pushed));
  for (const auto& s : sendings) s->cancel();
  out.stop(kAbortFrame, as_bytes("----stopped"));
  ReceiveStream::Pull pulled;
  for (const Deadline limit = soon(); pulled.end == ReceiveStream::End::none && !limit.passed();) {
    out.push();
    pulled = in.pull(reader.get());
  }
  EXPECT_EQ(pulled.end, ReceiveStream::End::aborted) << pulled.text;
  EXPECT_EQ(pulled.text, "----stopped");
  EXPECT_FALSE(mailbox.take({0, 0, 9}));
}

}  // namespace
}  // namespace cohort::net
