// Links of several sockets: everything a transport promises, and what is special about messages in parallel streams.
#include <sys/socket.h>

#include "cohort/net/tcp/tcp.h"
#include "cohort/net/transport/conformance.h"
#include "cohort/net/transport/mailbox.h"

namespace cohort::net {
namespace {

using testing::HasSubstr;

struct TwoStreams {
  static AllPeerLinks make(int ranks) { return tcp_world(ranks, {}, "auto", false, false, 2); }
};
struct FourStreams {
  static AllPeerLinks make(int ranks) { return tcp_world(ranks, {}, "auto", false, false, 4); }
};
struct FarStreams {  // as between hosts
  static AllPeerLinks make(int ranks) { return tcp_world(ranks, {}, "auto", true, false, 3); }
};
INSTANTIATE_TEST_SUITE_P(TwoStreams, Conformance, testing::Values(Factory{TwoStreams::make}));
INSTANTIATE_TEST_SUITE_P(FourStreams, Conformance, testing::Values(Factory{FourStreams::make}));
INSTANTIATE_TEST_SUITE_P(FarStreams, Conformance, testing::Values(Factory{FarStreams::make}));

Tag lane(std::uint32_t number) { return {1, kCollectiveTags + number}; }

// Rank 0 is a PeerLinks; of rank 1 there are only the connections.
struct HalfConnectedStreams {
  HalfConnectedStreams(int streams, int of) {
    const Secret secret = Secret::random();
    const Listener listener = listen_on({"127.0.0.1", 0}, secret);
    TcpPlan plan{.me = Rank{0}};
    plan.connections.resize(2);
    plan.more.resize(2);
    for (int s = 0; s < streams; ++s) {
      auto dialer = std::async(std::launch::async, [&] {
        return ControlConnection::connect(listener.address, secret, {"t", Epoch{}, Rank{1}, Role::worker, s, of}, soon());
      });
      ControlConnection connection =
          ControlConnection::accept(accept_one(listener, soon()), secret, {"t", Epoch{}, Rank{0}, Role::worker, 0, of}, soon());
      if (s == 0)
        plan.connections[1] = std::move(connection);
      else
        plan.more[1].push_back(std::move(connection));
      connections.emplace_back(dialer.get());
    }
    links = tcp_peer_links(std::move(plan));
  }
  Error ending(std::uint32_t number) const {
    std::vector<std::byte> buffer(4);
    return failure_of([&] { links->link(Rank{1}).recv(buffer, lane(number)).wait(soon()); });
  }
  std::vector<std::optional<ControlConnection>> connections;
  std::unique_ptr<PeerLinks> links;
};

}  // namespace

TEST(StreamIds, GiveEveryTagOneSocketAndCallersOwnTagsTheFirst) {
  for (const std::uint32_t of : {1u, 2u, 3u, 8u})
    for (const std::uint32_t number : {0u, 1u, 7u, kCollectiveTags - 1, kCollectiveTags, kCollectiveTags + 5, ~0u}) {
      int carriers = 0;
      for (std::uint32_t i = 0; i < of; ++i) carriers += StreamId{i, of}.carries({1, number}) ? 1 : 0;
      EXPECT_EQ(carriers, 1) << number << " of " << of;
      EXPECT_EQ((StreamId{0, of}.carries({1, number})), number < kCollectiveTags || number % of == 0);
    }
}

TEST(Streams, CarryLargeMessagesOfManyTagsBothWaysAtOnceInOrder) {
  for (const bool far : {false, true}) {
    AllPeerLinks world = tcp_world(3, {}, "auto", far, false, 4);
    on_all_ranks(world, [](PeerLinks& links) {
      constexpr std::uint32_t kTags = 8;
      constexpr std::size_t kRounds = 3;
      std::vector<std::vector<std::byte>> out, in;
      std::vector<Pending> pending;
      for (int p = 0; p < links.size(); ++p)
        for (std::size_t k = 0; k < kTags * kRounds && Rank{p} != links.rank(); ++k) {
          const std::size_t size = 1 + k * k * 3001;  // from a byte to 1.5 MiB, in several blocks
          out.push_back(pattern(size, static_cast<unsigned>(100 * links.rank().value + static_cast<int>(k))));
          in.emplace_back(size);
        }
      std::size_t at = 0;
      for (int p = 0; p < links.size(); ++p)
        for (std::size_t k = 0; k < kTags * kRounds && Rank{p} != links.rank(); ++k, ++at) {
          const auto number = static_cast<std::uint32_t>(k) % kTags;  // every tag several times
          pending.push_back(links.link(Rank{p}).send(out[at], lane(number)));
          pending.push_back(links.link(Rank{p}).recv(in[at], lane(number)));
        }
      for (auto& p : pending) p.wait(soon());
      at = 0;
      for (int p = 0; p < links.size(); ++p)
        for (std::size_t k = 0; k < kTags * kRounds && Rank{p} != links.rank(); ++k, ++at)
          ASSERT_TRUE(in[at] == pattern(in[at].size(), static_cast<unsigned>(100 * p + static_cast<int>(k)))) << k << " of rank " << p;
    });
  }
}

TEST(Streams, DeliverWhatWasSentBeforeAGoodbyeOnAnyOfThem) {
  AllPeerLinks world = tcp_world(2, {}, "auto", false, false, 4);
  const auto bytes = pattern(100'000, 5);
  for (std::uint32_t number = 0; number < 8; ++number) send_now(*world[1], 0, bytes, lane(number));
  world[1].reset();
  for (std::uint32_t number = 8; number-- > 0;) EXPECT_TRUE(recv_now(*world[0], 1, bytes.size(), lane(number)) == bytes) << number;
  std::vector<std::byte> none(1);
  const Error error = failure_of([&] { world[0]->link(Rank{1}).recv(none, lane(1)).wait(soon()); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_THAT(error.what, HasSubstr("rank 1 left"));
}

TEST(Streams, TheDeathOfOneIsTheDeathOfThePeer) {
  for (const std::size_t dead : {0u, 1u, 2u}) {
    HalfConnectedStreams half(3, 3);
    half.connections[dead].reset();
    for (std::uint32_t number = 0; number < 3; ++number) {
      const Error error = half.ending(number);
      EXPECT_EQ(error.kind, Kind::peer_lost);
      EXPECT_THAT(error.what, HasSubstr("rank 1"));
      EXPECT_THAT(error.what, HasSubstr("died"));
    }
    std::byte one{};
    EXPECT_EQ(failure_of([&] { half.links->link(Rank{1}).send({&one, 1}, lane(0)).wait(soon()); }).kind, Kind::peer_lost);
  }
}

TEST(Streams, GarbageOnOneEndsThemAll) {
  HalfConnectedStreams half(2, 2);
  const std::string garbage(100, 'x');
  ASSERT_EQ(::send(half.connections[1]->fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 100);
  EXPECT_EQ(half.ending(0).kind, Kind::corrupt);
  EXPECT_EQ(half.ending(1).kind, Kind::corrupt);
}

TEST(Streams, AnAbortReachesThePeerThoughSomeOfThemAreFull) {
  AllPeerLinks world = tcp_world(2, {}, "auto", false, false, 3);
  const std::vector<std::byte> large(64_MiB);
  const auto stuck = world[0]->link(Rank{1}).send(large, lane(1));  // no receive is posted
  world[0]->abort({Kind::aborted, "enough", Rank{0}});
  std::vector<std::byte> buffer(4);
  const Error error = failure_of([&] { world[1]->link(Rank{0}).recv(buffer, lane(0)).wait(soon()); });
  EXPECT_EQ(error.kind, Kind::aborted);
  EXPECT_THAT(error.what, HasSubstr("enough"));
}

}  // namespace cohort::net
