// Laws of a PeerChannel about messages, on every transport: order, tags, sizes, messages that cross, what is bounded, threads.
#include <algorithm>

#include "cohort/collective/channel/record.h"
#include "cohort/net/transport/mailbox.h"
#include "tests/laws/channel_world.h"

namespace cohort::collective {
namespace {

constexpr std::size_t kInline = PeerChannel::kInlineBytes, kEager = PeerChannel::kEagerBytes;

}  // namespace

TEST_P(ChannelLaws, KeepsTheOrderOfEachPeerAndTag) {
  world(3).on_all([](Communicator&, PeerChannel& channel) {
    constexpr std::uint32_t kTags = 5, kEach = 40;
    if (channel.rank() != Rank{0}) {
      for (std::uint32_t i = 0; i < kEach; ++i)
        for (std::uint32_t tag = 0; tag < kTags; ++tag) {  // all three ways that messages travel
          const std::size_t size = i % 3 == 0 ? 4 : i % 3 == 1 ? kInline + 1 : kEager + 1;
          send_now(channel, 0, tag, pattern(size, i * 100 + tag * 10 + static_cast<unsigned>(channel.rank().value)));
        }
      return;
    }
    std::vector<Buffer> buffers;
    std::vector<Pending> pendings;
    for (int from : {2, 1})
      for (std::uint32_t tag = kTags; tag-- > 0;)
        for (std::uint32_t i = 0; i < kEach; ++i) {
          buffers.emplace_back(i % 3 == 0 ? 4 : i % 3 == 1 ? kInline + 1 : kEager + 1);
          pendings.push_back(channel.recv(Rank{from}, tag, piece_of(buffers.back())));
        }
    for (auto& pending : pendings) pending.wait(soon());
    std::size_t at = 0;
    for (unsigned from : {2U, 1U})
      for (std::uint32_t tag = kTags; tag-- > 0;)
        for (std::uint32_t i = 0; i < kEach; ++i, ++at)
          ASSERT_TRUE(buffers[at] == pattern(buffers[at].size(), i * 100 + tag * 10 + from)) << from << " " << tag << " " << i;
  });
}

TEST_P(ChannelLaws, CarriesAnySize) {
  world(2).on_all([](Communicator&, PeerChannel& channel) {
    std::vector<std::size_t> sizes{0, 1, 3, 1000003, 8_MiB + 5};
    for (const std::size_t edge : {kInline, kEager, 2_KiB, 4_KiB, 32_KiB, 256_KiB, 1_MiB, std::size_t{net::Mailbox::kLargeBytes}})
      for (const std::size_t size : {edge - 1, edge, edge + 1}) sizes.push_back(size);
    for (const bool ahead : {true, false})  // the receive is posted before the message comes, and after
      for (const std::size_t size : sizes) {
        const auto data = pattern(size, static_cast<unsigned>(size));
        const Buffer none;
        if (channel.rank() == Rank{1}) {
          Buffer got(size);
          if (!ahead) recv_now(channel, 0, 9, 0);
          auto receiving = channel.recv(Rank{0}, 8, piece_of(got));
          if (ahead) send_now(channel, 0, 9, none);
          receiving.wait(soon());
          ASSERT_TRUE(got == data) << size << " bytes";
        } else {
          if (ahead) recv_now(channel, 1, 9, 0);
          auto sending = channel.send(Rank{1}, 8, piece_of(data));
          if (!ahead) send_now(channel, 1, 9, none);
          sending.wait(soon());
        }
      }
  });
}

TEST_P(ChannelLaws, LargeMessagesCrossBetweenAllRanksThoughEverySendBeginsBeforeAnyReceive) {
  world(4).on_all([](Communicator& comm, PeerChannel& channel) {
    constexpr std::size_t kBytes = 12_MiB;
    const int me = channel.rank().value;
    const auto mine = pattern(kBytes, static_cast<unsigned>(me));
    std::vector<Buffer> theirs(4, Buffer(kBytes));
    std::vector<Pending> pendings;
    for (int peer = 0; peer < 4; ++peer) pendings.push_back(channel.send(Rank{peer}, 1, piece_of(mine)));
    comm.barrier();
    for (int peer = 0; peer < 4; ++peer) pendings.push_back(channel.recv(Rank{peer}, 1, piece_of(theirs[static_cast<std::size_t>(peer)])));
    for (auto& pending : pendings) pending.wait(soon());
    for (unsigned peer = 0; peer < 4; ++peer) EXPECT_TRUE(theirs[peer] == pattern(kBytes, peer));
  });
}

TEST_P(ChannelLaws, SmallMessagesCrossThoughEverySendIsWaitedForBeforeAnyReceive) {
  world(2).on_all([](Communicator&, PeerChannel& channel) {
    const int me = channel.rank().value, peer = 1 - me;
    for (int i = 0; i < 8; ++i) send_now(channel, peer, 1, pattern(kEager, static_cast<unsigned>(me)));
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(recv_now(channel, peer, 1, kEager) == pattern(kEager, static_cast<unsigned>(peer)));
  });
}

TEST_P(ChannelLaws, WhatASenderCanLeaveAtAReceiverIsBoundedAndNothingIsLost) {
  ChannelWorld both = world(2);
  for (const std::size_t size : {kInline, kInline + 1, kEager}) {
    const auto data = pattern(size, 1);
    std::vector<Pending> sends;
    std::size_t over = 0;
    for (std::size_t sent = 0; sent < PeerChannel::kEagerWindow * 5 / 4; sent += size + sizeof(Record)) {
      sends.push_back(both[0].send(Rank{1}, 5, piece_of(data)));
      over += sends.back().poll() ? size + sizeof(Record) : 0;
    }
    EXPECT_LE(over, PeerChannel::kEagerWindow) << size;
    both.on_all([&](Communicator&, PeerChannel& channel) {
      if (channel.rank() == Rank{1}) {
        for (std::size_t i = 0; i < sends.size(); ++i) ASSERT_TRUE(recv_now(channel, 0, 5, size) == data);
      } else {
        for (auto& send : sends) send.wait(soon());
      }
    });
  }
}

TEST_P(ChannelLaws, ManyCallsAreOutstandingAtOnceAndTheLastSentCanBeReceivedFirst) {
  world(2).on_all([](Communicator&, PeerChannel& channel) {
    constexpr std::uint32_t kMessages = 1500;
    const auto size_of_message = [](std::uint32_t i) { return (i * 7919U) % 3 == 0 ? kEager + i : (i * 131U) % 2000; };
    std::vector<Buffer> buffers(kMessages);
    std::vector<Pending> pendings(kMessages);
    if (channel.rank() == Rank{0}) {
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        buffers[i] = pattern(size_of_message(i), i);
        pendings[i] = channel.send(Rank{1}, i, piece_of(buffers[i]));
      }
      for (auto& pending : pendings) pending.wait(soon());
      return;
    }
    for (std::uint32_t i = kMessages; i-- > 0;) {
      buffers[i].resize(size_of_message(i));
      pendings[i] = channel.recv(Rank{0}, i, piece_of(buffers[i]));
      if (i % 100 == 0) pendings[i].wait(soon());
    }
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      pendings[i].wait(soon());
      ASSERT_TRUE(buffers[i] == pattern(buffers[i].size(), i)) << i;
    }
  });
}

TEST_P(ChannelLaws, AnyThreadMayCall) {
  world(3).on_all([](Communicator&, PeerChannel& channel) {
    std::vector<std::future<void>> threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.push_back(std::async(std::launch::async, [&channel, t] {
        for (std::uint32_t i = 0; i < 40; ++i)
          for (int peer = 0; peer < channel.size(); ++peer) {
            const auto size = (t * 7919 + i * 9973) % (2 * kEager);
            const auto me = static_cast<unsigned>(channel.rank().value);
            const auto data = pattern(size, t * 1000 + i + me);
            Buffer got(size);
            auto receiving = channel.recv(Rank{peer}, t, piece_of(got));
            auto sending = channel.send(Rank{peer}, t, piece_of(data));
            sending.wait(soon());
            receiving.wait(soon());
            ASSERT_TRUE(got == pattern(size, t * 1000 + i + static_cast<unsigned>(peer)));
          }
      }));
    for (auto& thread : threads) thread.get();
  });
}

TEST_P(ChannelLaws, ARankSendsToItselfAlsoInAWorldOfOne) {
  for (const int ranks : {1, 2}) {
    ChannelWorld some = world(ranks);
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, kInline + 1, kEager, kEager + 1, 4_MiB}) {
      const auto data = pattern(size, 7);
      Buffer early(size), late(size);
      auto first = some[0].recv(Rank{0}, 3, piece_of(early));
      auto a = some[0].send(Rank{0}, 3, piece_of(data)), b = some[0].send(Rank{0}, 3, piece_of(data));
      auto second = some[0].recv(Rank{0}, 3, piece_of(late));
      for (auto* pending : {&first, &a, &b, &second}) pending->wait(soon());
      EXPECT_TRUE(early == data && late == data) << size;
    }
  }
}

TEST_P(ChannelLaws, TagsMeetNeitherThoseOfTheCommunicatorNorOfAnotherChannel) {
  world(2).on_all([](Communicator& comm, PeerChannel& channel) {
    const auto second = comm.channel();
    const auto child = comm.split(0);
    const auto of_child = child->channel();
    const int me = channel.rank().value, peer = 1 - me;
    std::vector<Buffer> sent, got(4, Buffer(64));
    for (unsigned i = 0; i < 4; ++i) sent.push_back(pattern(64, i * 2 + static_cast<unsigned>(me)));
    std::vector<Pending> pendings;
    pendings.push_back(of_child->recv(Rank{peer}, 5, piece_of(got[2])));
    pendings.push_back(second->recv(Rank{peer}, 5, piece_of(got[1])));
    pendings.push_back(channel.recv(Rank{peer}, 5, piece_of(got[0])));
    comm.send(piece_of(sent[3]), Rank{peer}, 5);
    pendings.push_back(channel.send(Rank{peer}, 5, piece_of(sent[0])));
    pendings.push_back(second->send(Rank{peer}, 5, piece_of(sent[1])));
    pendings.push_back(of_child->send(Rank{peer}, 5, piece_of(sent[2])));
    for (auto& pending : pendings) pending.wait(soon());
    comm.recv(piece_of(got[3]), Rank{peer}, 5);
    for (unsigned i = 0; i < 4; ++i) EXPECT_TRUE(got[i] == pattern(64, i * 2 + static_cast<unsigned>(peer))) << i;
    comm.barrier();
  });
}

TEST_P(ChannelLaws, WhatItReceivesIsCountedAsMoved) {
  world(2).on_all([](Communicator& comm, PeerChannel& channel) {
    std::vector<double> values(1000, 1.5);
    if (channel.rank() == Rank{0}) return channel.send(Rank{1}, 1, piece(std::span(values))).wait(soon());
    channel.recv(Rank{0}, 1, piece(std::span(values))).wait(soon());
    const Moved moved = comm.moved(Collective::recv);
    EXPECT_EQ(moved.calls, 1U);
    EXPECT_EQ(moved.elements, 1000U);
    EXPECT_EQ(moved.bytes, 8000U);
  });
}

INSTANTIATE_TEST_SUITE_P(On, ChannelLaws, ::testing::Values("loopback", "shm", "tcp", "tcp_far", "tcp_streams", "tls", "mixed"),
                         [](const auto& given) { return given.param; });

}  // namespace cohort::collective
