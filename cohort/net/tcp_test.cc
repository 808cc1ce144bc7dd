#include "cohort/net/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "cohort/net/conformance.h"
#include "cohort/net/frame.h"
#include "cohort/net/inflow.h"
#include "cohort/net/outflow.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Tcp {
  static Meshes make(int ranks) { return tcp_meshes(ranks); }
};
INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, testing::Values(Factory{Tcp::make}));

// As between hosts: blocks carry checksums, large ones leave without a copy until the kernel says that it does not pay.
struct FarTcp {
  static Meshes make(int ranks) { return tcp_meshes(ranks, {}, "auto", true); }
};
INSTANTIATE_TEST_SUITE_P(FarTcp, Conformance, testing::Values(Factory{FarTcp::make}));

// Rank 0 is a mesh; rank 1 is a bare socket in our hand, past the handshake.
struct HalfMesh {
  HalfMesh() {
    const Secret secret = Secret::random();
    const Listener listener = listen_on({"127.0.0.1", 0}, secret);
    auto dialer = std::async(std::launch::async, [&] {
      return Wire::connect(listener.address, secret, {"t", Epoch{}, Rank{1}, Role::worker}, soon());
    });
    std::vector<std::optional<Wire>> wires(2);
    wires[1] = Wire::accept(accept_one(listener, soon()), secret, {"t", Epoch{}, Rank{0}, Role::worker}, soon());
    hand.emplace(dialer.get());
    mesh = tcp_mesh({Rank{0}, Epoch{}, std::move(wires), "auto", false});
  }
  void say(ConstBytes bytes) const {
    ASSERT_EQ(::send(hand->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  Error ending(std::size_t size = 4) const {
    std::vector<std::byte> buffer(size);
    return failure_of([&] { mesh->link(Rank{1}).recv(buffer, {0, 1}).wait(soon()); });
  }
  std::optional<Wire> hand;
  std::unique_ptr<Mesh> mesh;
};

std::vector<std::byte> framed(std::uint16_t type, std::uint64_t sequence, std::string_view body, std::uint8_t flags = 0,
                              std::uint32_t check = 0) {
  const HeaderBytes header = encode_header({.type = type, .flags = flags, .length = body.size(), .tag = {0, 1}, .sequence = sequence});
  const StampBytes stamp = good_stamp(check);
  std::vector<std::byte> out(encoded_bytes(body.size()));
  auto end = std::ranges::copy(header, out.begin()).out;
  end = std::ranges::copy(as_bytes(body), end).out;
  if (!body.empty()) std::ranges::copy(stamp, end);
  return out;
}

TEST(TcpMesh, TakesAnEndWithoutGoodbyeForADeath) {
  HalfMesh half;
  half.hand.reset();
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("died")));
}

TEST(TcpMesh, TakesADeathInTheMiddleOfAMessageForADeath) {
  HalfMesh half;
  half.say(ConstBytes(framed(kDataFrame, 0, std::string(100, 'x'))).first(90));
  half.hand.reset();
  EXPECT_EQ(half.ending(100).kind, Kind::peer_lost);
}

TEST(TcpMesh, RefusesForeignBytesAndNamesTheRank) {
  HalfMesh half;
  half.say(as_bytes(std::string(100, 'j')));
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("rank 1"));
}

TEST(TcpMesh, RefusesAFrameThatCameTwice) {
  HalfMesh half;
  for (int i = 0; i < 2; ++i) half.say(framed(kDataFrame, 0, "four"));
  EXPECT_EQ(recv_now(*half.mesh, 1, 4, {0, 1}).size(), 4U);
  EXPECT_THAT(half.ending().what, HasSubstr("replayed"));
}

TEST(TcpMesh, RefusesABlockThatDoesNotMatchItsChecksum) {
  HalfMesh half;
  half.say(framed(kDataFrame, 0, "four", kCheckedFlag, crc32c(as_bytes("four"))));
  EXPECT_EQ(recv_now(*half.mesh, 1, 4, {0, 1}).size(), 4U);
  half.say(framed(kDataFrame, 1, "fore", kCheckedFlag, crc32c(as_bytes("four"))));
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("checksum")));
}

// An abort must get through although a message is half gone and its buffer is no longer ours to send.
TEST(TcpMesh, SaysWhyItAbortsInTheMiddleOfALargeMessage) {
  Meshes meshes = tcp_meshes(2);
  const auto data = pattern(64_MiB, 1);
  auto sending = meshes[0]->link(Rank{1}).send(data, {0, 1});
  ASSERT_FALSE(sending.poll()) << "64 MiB must not fit into socket buffers";
  meshes[0]->abort({Kind::usage, "loss is not a number", Rank{0}});
  EXPECT_EQ(failure_of([&] { sending.wait(soon()); }).what, "loss is not a number");
  const Error error = failure_of([&] { recv_now(*meshes[1], 0, 64_MiB, {0, 1}); });
  EXPECT_EQ(error.kind, Kind::aborted) << error.what;
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 0"), HasSubstr("loss is not a number")));
}

TEST(TcpMesh, TellsThePeerOfASendThatWasGivenUp) {
  Meshes meshes = tcp_meshes(2);
  const auto data = pattern(64_MiB, 1);
  EXPECT_EQ(failure_of([&] { meshes[0]->link(Rank{1}).send(data, {0, 1}).wait(Deadline::in(50ms)); }).kind, Kind::timeout);
  const Error error = failure_of([&] { recv_now(*meshes[1], 0, 64_MiB, {0, 1}); });
  EXPECT_EQ(error.kind, Kind::aborted) << error.what;
  EXPECT_THAT(error.what, HasSubstr("gave up a send of 67108864 bytes"));
}

TEST(TcpMesh, RefusesAWordAboutAMessageThatWasNeverLent) {
  HalfMesh half;
  half.say(framed(kGotFrame, 0, ""));
  const Error error = half.ending();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("nobody lent")));
}

// Each side's word that it has read the other's message stands behind a message that the other has not asked for yet.
TEST(TcpMesh, FinishesLargeSendsOfBothSidesBeforeEitherReceives) {
  Meshes meshes = tcp_meshes(2);
  const Tag tag{0, kCollectiveTags};
  on_all_ranks(meshes, [&](Mesh& mesh) {
    const int other = 1 - mesh.rank().value;
    const auto mine = pattern(3_MiB, static_cast<unsigned>(mesh.rank().value));
    for (int i = 0; i < 3; ++i) send_now(mesh, other, mine, tag);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(recv_now(mesh, other, mine.size(), tag) == pattern(mine.size(), static_cast<unsigned>(other)));
  });
}

// The beginning of a collective's message whose receive nobody has posted: it is held back, and with it all that comes behind.
void hold_back(const HalfMesh& half, bool all) {
  auto frame = framed(kDataFrame, 0, std::string(200'000, 'x'));
  const HeaderBytes header = encode_header({.type = kDataFrame, .flags = 0, .length = 200'000, .tag = {0, kCollectiveTags}, .sequence = 0});
  std::ranges::copy(header, frame.begin());
  half.say(ConstBytes(frame).first(all ? frame.size() : 1000));
}

TEST(TcpMesh, NoticesADeathBehindAMessageThatIsHeldBack) {
  HalfMesh half;
  hold_back(half, false);
  EXPECT_EQ(failure_of([&] { half.mesh->link(Rank{0}).recv({}, {0, 5}).wait(Deadline::in(20ms)); }).kind, Kind::timeout);
  std::promise<Error> told;
  half.mesh->watch([&](Rank, const Error& error) { told.set_value(error); });
  half.hand.reset();
  auto news = told.get_future();
  ASSERT_EQ(news.wait_for(30s), std::future_status::ready) << "nobody waits on that peer, and yet";
  EXPECT_EQ(news.get().kind, Kind::peer_lost);
}

TEST(TcpMesh, NoticesAnAbortBehindAMessageThatIsHeldBack) {
  HalfMesh half;
  hold_back(half, true);
  half.say(framed(kAbortFrame, 1, std::string("\0\0\0\0why", 7)));
  std::byte never;
  auto waits = half.mesh->link(Rank{0}).recv({&never, 1}, {0, 5});  // on another peer, as far as rank 1 is concerned
  for (const Deadline limit = soon(); !half.mesh->failure(Rank{1}) && !limit.passed();) waits.wait_until(Deadline::in(50ms));
  ASSERT_TRUE(half.mesh->failure(Rank{1}));
  EXPECT_THAT(half.mesh->failure(Rank{1})->what, HasSubstr("why"));
}

TEST(TcpMesh, WaitsLongerThanAnyTimerForABusyPeer) {
  Meshes meshes = tcp_meshes(2);
  const auto data = pattern(32_MiB, 1);
  auto sending = std::async(std::launch::async, [&] { send_now(*meshes[0], 1, data, {0, 1}); });
  EXPECT_EQ(sending.wait_for(4s), std::future_status::timeout);  // longer than kDeadHost with a closed window
  EXPECT_TRUE(recv_now(*meshes[1], 0, data.size(), {0, 1}) == data);
  sending.get();
}

TEST(TcpMesh, SetsTheCongestionControlThatWasAskedFor) {
  const Fd fd{::socket(AF_INET, SOCK_STREAM, 0)};
  EXPECT_EQ(set_congestion(fd.get(), "reno"), "reno");
  EXPECT_THAT(set_congestion(fd.get(), "auto"), testing::AnyOf("cubic", "reno"));
  EXPECT_THAT(failure_of([&] { set_congestion(fd.get(), "pigeon"); }).what, HasSubstr("'pigeon' is not to be had"));
}

std::string congestion_of(int fd) {
  char name[32] = {};
  socklen_t size = sizeof name;
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 ? name : "none";
}

// Pacing sticks to a connection that was born with it, whatever it is given later.
TEST(Wire, IsBornUnderCubicOnBothSidesWhereTheKernelHasIt) {
  const Fd plain{::socket(AF_INET, SOCK_STREAM, 0)};
  const std::string systems = congestion_of(plain.get());
  const bool has_cubic = setsockopt(plain.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0;
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  auto dialer = std::async(std::launch::async, [&] {
    return Wire::connect(listener.address, secret, {"t", Epoch{}, Rank{1}, Role::worker}, soon());
  });
  const Wire accepted = Wire::accept(accept_one(listener, soon()), secret, {"t", Epoch{}, Rank{0}, Role::worker}, soon());
  const Wire dialed = dialer.get();
  EXPECT_EQ(congestion_of(accepted.fd()), has_cubic ? "cubic" : systems);
  EXPECT_EQ(congestion_of(dialed.fd()), has_cubic ? "cubic" : systems);
}

// ---- the two halves of a stream, without sockets between ranks

TEST(Inflow, FindsMessagesHoweverTheStreamIsCut) {
  std::vector<std::byte> stream;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::string body(i * i * 31, static_cast<char>('a' + i));
    const auto frame = framed(kDataFrame, i, body, kCheckedFlag, crc32c(as_bytes(body)));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  const auto bye = framed(kGoodbyeFrame, 20, "");
  stream.insert(stream.end(), bye.begin(), bye.end());
  for (const std::size_t piece : {1UL, 7UL, 1000UL, stream.size()}) {
    Mailbox mailbox(Rank{0}, 2);
    Inflow in(mailbox, Rank{1});
    Inflow::Pull last;
    for (std::size_t at = 0; at < stream.size(); at += piece)
      last = in.feed(ConstBytes(stream).subspan(at, std::min(piece, stream.size() - at)));
    EXPECT_EQ(last.end, Inflow::End::goodbye) << last.text;
    for (std::size_t i = 0; i < 20; ++i) {
      const auto message = mailbox.take({0, 0, 9});
      ASSERT_TRUE(message);
      EXPECT_EQ(message->bytes.size(), i * i * 31);
    }
  }
}

TEST(Inflow, DropsAMessageThatWasStampedVoidAndReadsOn) {
  Mailbox mailbox(Rank{0}, 2);
  Inflow in(mailbox, Rank{1});
  auto cut = framed(kDataFrame, 0, "cut off");
  const StampBytes stamp = void_stamp();
  std::copy(stamp.begin(), stamp.end(), cut.end() - kStampBytes);
  EXPECT_EQ(in.feed(cut).end, Inflow::End::none);
  const Inflow::Pull end = in.feed(framed(kAbortFrame, 1, std::string("\0\0\0\0why", 7)));
  EXPECT_EQ(end.end, Inflow::End::aborted);
  EXPECT_THAT(end.text, testing::EndsWith("why"));
  EXPECT_FALSE(mailbox.take({0, 0, 9}));
}

// Whatever of a message has left when its sender must stop, the peer finds the next frame, and never takes zeros for data.
TEST(Outflow, CanStopAfterAnyByteOfAMessage) {
  const auto data = pattern(2 * kBlockBytes + 100, 3);
  std::vector<std::byte> frame;
  const HeaderBytes header =
      encode_header({.type = kDataFrame, .flags = kCheckedFlag, .length = data.size(), .tag = {0, 1}, .sequence = 0});
  frame.insert(frame.end(), header.begin(), header.end());
  std::vector<std::uint32_t> checks;
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    const ConstBytes block = ConstBytes(data).subspan(at, std::min(kBlockBytes, data.size() - at));
    checks.push_back(crc32c(block));
    const StampBytes stamp = good_stamp(checks.back());
    frame.insert(frame.end(), block.begin(), block.end());
    frame.insert(frame.end(), stamp.begin(), stamp.end());
  }
  ASSERT_EQ(frame.size(), encoded_bytes(data.size()));
  const std::size_t stride = kBlockBytes + kStampBytes;
  for (const std::size_t around : {std::size_t{20}, kHeaderBytes + stride, kHeaderBytes + 2 * stride, frame.size() - 10}) {
    for (std::size_t sent = around - 10; sent <= around + 10; ++sent) {
      Mailbox mailbox(Rank{0}, 2);
      Inflow in(mailbox, Rank{1});
      const std::size_t block = sent < kHeaderBytes ? 0 : std::min<std::size_t>((sent - kHeaderBytes) / stride, 2);
      in.feed(ConstBytes(frame).first(sent));
      EXPECT_EQ(in.feed(void_rest(header, data.size(), sent, checks[block])).end, Inflow::End::none) << sent;
      EXPECT_EQ(in.feed(framed(kGoodbyeFrame, 1, "")).end, Inflow::End::goodbye) << sent;
      EXPECT_EQ(mailbox.take({0, 0, 9}).has_value(), sent > frame.size() - kStampBytes) << sent;
    }
  }
}

TEST(Outflow, SendsOneLastFrameThroughAFullSocket) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const Fd writer{fds[0]}, reader{fds[1]};
  const auto data = pattern(3_MiB + 5, 3);
  Outflow out(writer.get(), Rank{1}, true);
  Mailbox mailbox(Rank{0}, 2);
  Inflow in(mailbox, Rank{1});
  Outflow::Push pushed;
  std::vector<std::shared_ptr<Sending>> sendings;
  for (std::uint32_t i = 0; i < 3; ++i) sendings.push_back(out.begin(data, {0, i}, pushed));
  for (const auto& s : sendings) s->cancel();
  out.stop(kAbortFrame, as_bytes("----stopped"));
  Inflow::Pull pulled;
  for (const Deadline limit = soon(); pulled.end == Inflow::End::none && !limit.passed();) {
    out.push();
    pulled = in.pull(reader.get());
  }
  EXPECT_EQ(pulled.end, Inflow::End::aborted) << pulled.text;
  EXPECT_EQ(pulled.text, "----stopped");
  EXPECT_FALSE(mailbox.take({0, 0, 9}));
}

}  // namespace
}  // namespace cohort::net
