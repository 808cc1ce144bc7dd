// Laws of a PeerChannel about failures, on every transport: a lost peer fails the calls to it and nothing else.
#include "cohort/net/transport/faulty.h"
#include "tests/laws/channel_world.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kEager = PeerChannel::kEagerBytes, kLarge = 16_MiB;

std::vector<float> reduced(Communicator& comm, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 97) * 0.37F + 0.11F * static_cast<float>(comm.rank().value);
  comm.all_reduce(piece(std::span(values)), Op::sum);
  return values;
}

}  // namespace

TEST_P(ChannelLaws, ALostPeerFailsItsOwnCallsAndTheOthersGoOnAsDoTheirCollectives) {
  ChannelWorld some = world(3);
  std::vector<std::unique_ptr<Communicator>> pairs(3);
  some.on_all([&](Communicator& comm, PeerChannel& channel) {
    const std::vector<Rank> survivors{Rank{0}, Rank{1}};
    pairs[static_cast<std::size_t>(channel.rank().value)] = comm.subset(survivors);
  });
  const auto data = pattern(kLarge, 1);
  Buffer never(4), got(kLarge);
  auto unmet_send = some[0].send(Rank{2}, 1, piece_of(data));
  auto unmet_recv = some[0].recv(Rank{2}, 2, piece_of(never));
  auto receiving = some[0].recv(Rank{1}, 3, piece_of(got));
  EXPECT_FALSE(some[0].lost(Rank{2}));
  some.leave(2);
  for (auto* pending : {&unmet_send, &unmet_recv}) {
    const Error error = failure_of([&] { pending->wait(soon()); });
    EXPECT_EQ(error.kind, Kind::peer_lost) << error.what;
    EXPECT_EQ(error.rank, Rank{2});
    EXPECT_THAT(error.what, AllOf(HasSubstr("rank 2"), HasSubstr("calls to other ranks go on")));
  }
  EXPECT_TRUE(some[0].lost(Rank{2}));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(failure_of([&] { send_now(some[0], 2, 1, data); }).kind, Kind::peer_lost);
    EXPECT_EQ(failure_of([&] { recv_now(some[0], 2, 1, 4); }).kind, Kind::peer_lost);
  }
  auto sending = some[1].send(Rank{0}, 3, piece_of(data));
  finish({&sending, &receiving});
  EXPECT_TRUE(got == data);
  EXPECT_FALSE(some[0].lost(Rank{1}));
  auto second = std::async(std::launch::async, [&] { return reduced(*pairs[1], 100'000); });
  const auto first = reduced(*pairs[0], 100'000);
  EXPECT_TRUE(first == second.get());
}

TEST_P(ChannelLaws, AFailureNamesTheRankOfTheCommunicatorAndOfTheLinks) {
  ChannelWorld some = world(3);
  std::vector<std::unique_ptr<Communicator>> reversed(3);
  some.on_all([&](Communicator& comm, PeerChannel&) {
    const int me = comm.rank().value;
    reversed[static_cast<std::size_t>(me)] = comm.split(0, -me);
  });
  const auto channel = reversed[0]->channel();
  EXPECT_EQ(channel->rank(), Rank{2});
  reversed[2].reset();
  some.leave(2);
  const Error error = failure_of([&] { recv_now(*channel, 0, 1, 4); });
  EXPECT_EQ(error.rank, Rank{0});
  EXPECT_THAT(error.what, AllOf(HasSubstr("from rank 0 (tag 1), which is rank 2 of the links, on rank 2"), HasSubstr("rank 2 left")));
}

TEST_P(ChannelLaws, WhatALeavingPeerSentBeforeIsStillReceived) {
  ChannelWorld both = world(2);
  for (const std::size_t size : {std::size_t{4}, std::size_t{5000}, kEager}) send_now(both[1], 0, 1, pattern(size, 1));
  both.leave(1);
  for (const std::size_t size : {std::size_t{4}, std::size_t{5000}, kEager}) EXPECT_TRUE(recv_now(both[0], 1, 1, size) == pattern(size, 1));
  EXPECT_EQ(failure_of([&] { recv_now(both[0], 1, 1, 4); }).kind, Kind::peer_lost);
}

TEST_P(ChannelLaws, AClosedChannelIsALostPeerToTheOthersThoughItsCommunicatorGoesOn) {
  ChannelWorld some = world(3);
  Buffer got(4);
  auto receiving = some[0].recv(Rank{1}, 1, piece_of(got));
  auto own = some[1].recv(Rank{0}, 1, piece_of(got));
  some.channels[1].reset();
  const Error error = failure_of([&] { receiving.wait(soon()); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_THAT(error.what, HasSubstr("rank 1 closed its channel"));
  EXPECT_THAT(failure_of([&] { own.wait(soon()); }).what, HasSubstr("closed on this rank"));
  some.channels[1] = some.comm(1).channel();
  some.channels[0] = some.comm(0).channel();  // the next one of both
  some.channels[2] = some.comm(2).channel();
  some.on_all([](Communicator& comm, PeerChannel& channel) {
    const int right = (channel.rank().value + 1) % 3, left = (channel.rank().value + 2) % 3;
    send_now(channel, right, 1, pattern(4, 1));
    EXPECT_EQ(recv_now(channel, left, 1, 4), pattern(4, 1));
    comm.barrier();
  });
}

TEST_P(ChannelLaws, AnAbortOfTheCommunicatorEndsEveryCallWithItsCause) {
  ChannelWorld some = world(3);
  Buffer got(4);
  auto own = some[0].recv(Rank{1}, 1, piece_of(got)), to_self = some[0].recv(Rank{0}, 1, piece_of(got)),
       theirs = some[2].recv(Rank{1}, 1, piece_of(got));
  some.comm(0).abort({Kind::usage, "loss is not a number", Rank{0}});
  for (auto* pending : {&own, &to_self, &theirs})
    EXPECT_THAT(failure_of([&] { pending->wait(soon()); }).what, HasSubstr("loss is not a number"));
  EXPECT_THAT(failure_of([&] { send_now(some[2], 1, 1, pattern(4, 1)); }).what, HasSubstr("loss is not a number"));
}

TEST_P(ChannelLaws, CollectivesOfTheSameCommunicatorGoOnBesideItWithTheSameBits) {
  ChannelWorld some = world(3);
  std::vector<std::vector<float>> quiet(3);
  some.on_all([&](Communicator& comm, PeerChannel&) { quiet[static_cast<std::size_t>(comm.rank().value)] = reduced(comm, 300'000); });
  std::atomic<int> traffic{0}, computing{3};
  some.on_all([&](Communicator& comm, PeerChannel& channel) {
    auto beside = std::async(std::launch::async, [&] {
      const int me = channel.rank().value, right = (me + 1) % 3, left = (me + 2) % 3;
      Buffer out = pattern(2_MiB, static_cast<unsigned>(me)), in(2_MiB);
      for (int i = 0; i < 20; ++i) {
        auto receiving = channel.recv(Rank{left}, 1, piece_of(in));
        auto sending = channel.send(Rank{right}, 1, piece_of(out));
        sending.wait(soon());
        receiving.wait(soon());
        EXPECT_TRUE(in == pattern(2_MiB, static_cast<unsigned>(left)));
        ++traffic;
      }
    });
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(reduced(comm, 300'000) == quiet[static_cast<std::size_t>(comm.rank().value)]);
    beside.get();
  });
  EXPECT_EQ(traffic, 60);
}

// A cut cable: one end of one link fails, the other end of it does not know.
TEST_P(ChannelLaws, ALinkThatIsCutEndsTheCallsOverItAndNoOthers) {
  auto links = links_over(GetParam(), 3);
  const net::FaultPlan cut{.cut_after = 40, .peers = {Rank{2}}};
  links[0] = net::faulty_peer_links(std::move(links[0]), cut);
  links[1] = net::faulty_peer_links(std::move(links[1]), {.delay = 1e-9});  // so that all agree that no memory is shared
  links[2] = net::faulty_peer_links(std::move(links[2]), {.delay = 1e-9});
  ChannelWorld some(std::move(links));
  const Error error = failure_of([&] {
    for (int i = 0; i < 100; ++i) send_now(some[0], 2, 1, pattern(4, 1));
  });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 2"), HasSubstr("cut")));
  const auto data = pattern(kLarge, 1);
  Buffer got(kLarge);
  auto receiving = some[1].recv(Rank{0}, 1, piece_of(got));
  auto sending = some[0].send(Rank{1}, 1, piece_of(data));
  finish({&receiving, &sending});
  EXPECT_TRUE(got == data);
}

}  // namespace cohort::collective
