// The claims of conformance.h about messages: order, sizes, tags, pairs. Compiled once for all transports.
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

TEST_P(Conformance, ReportsRanksAndNoFailures) {
  const AllPeerLinks world = make(3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(world[static_cast<std::size_t>(r)]->rank(), Rank{r});
    EXPECT_EQ(world[static_cast<std::size_t>(r)]->size(), 3);
    for (int p = 0; p < 3; ++p) EXPECT_FALSE(world[static_cast<std::size_t>(r)]->failure(Rank{p}));
  }
  EXPECT_EQ(failure_of([&] { world[0]->link(Rank{3}); }).kind, Kind::usage);
}

TEST_P(Conformance, KeepsOrderPerTag) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    for (std::uint32_t i = 0; i < 500; ++i) {
      if (links.rank() == Rank{0}) {
        send_now(links, 1, bytes_of(i), {1, 7});
      } else {
        std::uint32_t got = 0;
        links.link(Rank{0}).recv(writable_bytes_of(got), {1, 7}).wait(soon());
        ASSERT_EQ(got, i);
      }
    }
  });
}

TEST_P(Conformance, KeepsOrderForReceivesPostedAhead) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    std::vector<std::uint32_t> values(100);
    std::vector<Pending> pending;
    for (std::uint32_t i = 0; i < 100; ++i) {
      if (links.rank() == Rank{0}) values[i] = i;
      pending.push_back(links.rank() == Rank{0} ? links.link(Rank{1}).send(bytes_of(values[i]), {1, i % 3})
                                                : links.link(Rank{0}).recv(writable_bytes_of(values[i]), {1, i % 3}));
    }
    for (auto& p : pending) p.wait(soon());
    for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(values[i], i);
  });
}

TEST_P(Conformance, LetsTagsOvertakeEachOther) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    const auto one = pattern(100, 1), two = pattern(200'000, 2), three = pattern(3, 3);
    if (links.rank() == Rank{0}) {
      auto a = links.link(Rank{1}).send(one, {0, 1}), b = links.link(Rank{1}).send(two, {0, 2}),
           c = links.link(Rank{1}).send(three, {9, 1});
      for (auto* p : {&a, &b, &c}) p->wait(soon());
    } else {
      EXPECT_EQ(recv_now(links, 0, 3, {9, 1}), three);
      EXPECT_EQ(recv_now(links, 0, 200'000, {0, 2}), two);
      EXPECT_EQ(recv_now(links, 0, 100, {0, 1}), one);
    }
  });
}

TEST_P(Conformance, ExchangesBigMessagesBothWaysAtOnce) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    const int me = links.rank().value, peer = 1 - me;
    const auto mine = pattern(8_MiB, static_cast<unsigned>(me));
    std::vector<std::byte> theirs(8_MiB);
    auto sending = links.link(Rank{peer}).send(mine, {0, 0});
    auto receiving = links.link(Rank{peer}).recv(theirs, {0, 0});
    sending.wait(soon());  // makes progress on the receive too
    receiving.wait(soon());
    EXPECT_TRUE(theirs == pattern(8_MiB, static_cast<unsigned>(peer)));
  });
}

TEST_P(Conformance, CarriesAnySize) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    for (const std::size_t size : {0UL, 1UL, 3UL, 63UL, 64UL, 65UL, 4095UL, 4097UL, 65537UL, 262143UL, 262144UL, 262145UL, 1000003UL}) {
      const auto data = pattern(size, static_cast<unsigned>(size));
      if (links.rank() == Rank{0})
        send_now(links, 1, data, {2, 0});
      else
        EXPECT_TRUE(recv_now(links, 0, size, {2, 0}) == data) << size << " bytes";
    }
  });
}

TEST_P(Conformance, LinksARankToItself) {
  for (const int ranks : {1, 2}) {
    const AllPeerLinks world = make(ranks);
    const auto data = pattern(100'000, 5);
    send_now(*world[0], 0, data, {0, 1});
    EXPECT_TRUE(recv_now(*world[0], 0, data.size(), {0, 1}) == data);
    std::uint64_t got = 0;
    const std::uint64_t value = 77;
    auto receiving = world[0]->link(Rank{0}).recv(writable_bytes_of(got), {0, 2});
    send_now(*world[0], 0, bytes_of(value), {0, 2});
    receiving.wait(soon());
    EXPECT_EQ(got, 77U);
  }
}

TEST_P(Conformance, DiscardsUnexpectedMessages) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    const std::uint32_t old = 1, fresh = 2;
    if (links.rank() == Rank{0}) {
      send_now(links, 1, bytes_of(old), {5, 1});
      send_now(links, 1, bytes_of(old), {6, 1});  // another channel: stays
      recv_now(links, 1, 1, {0, 0});
      send_now(links, 1, bytes_of(fresh), {5, 1});
      return;
    }
    EXPECT_EQ(recv_now(links, 0, 4, {6, 1}).size(), 4U);  // the one before it has arrived as well
    links.discard({5, 0, 100});
    send_now(links, 0, pattern(1, 0), {0, 0});
    std::uint32_t got = 0;
    links.link(Rank{0}).recv(writable_bytes_of(got), {5, 1}).wait(soon());
    EXPECT_EQ(got, fresh);
  });
}

TEST_P(Conformance, ConnectsEveryPairOfAnyNumberOfRanks) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    AllPeerLinks world = make(ranks);
    on_all_ranks(world, [](PeerLinks& links) {
      const auto n = static_cast<std::size_t>(links.size());
      const auto mine = pattern(5000, static_cast<unsigned>(links.rank().value));
      std::vector<std::vector<std::byte>> got(n, std::vector<std::byte>(5000));
      std::vector<Pending> pending;
      for (std::size_t p = 0; p < n; ++p) pending.push_back(links.link(Rank{static_cast<int>(p)}).recv(got[p], {0, 5}));
      for (std::size_t p = 0; p < n; ++p) pending.push_back(links.link(Rank{static_cast<int>(p)}).send(mine, {0, 5}));
      for (auto& p : pending) p.wait(soon());
      for (std::size_t p = 0; p < n; ++p) EXPECT_TRUE(got[p] == pattern(5000, static_cast<unsigned>(p)));
      for (std::size_t p = 0; p < n; ++p) send_now(links, static_cast<int>(p), {}, {0, 6});  // a barrier: nobody leaves before all are done
      for (std::size_t p = 0; p < n; ++p) recv_now(links, static_cast<int>(p), 0, {0, 6});
    });
  }
}

}  // namespace
}  // namespace cohort::net
