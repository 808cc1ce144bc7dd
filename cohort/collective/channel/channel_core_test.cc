// What a ChannelCore does with bytes that no ChannelCore sends.
#include "cohort/collective/channel/channel_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cohort/net/transport/loopback.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kChannel = 4;

// Rank 0 of three has a channel; the others are in the hands of the test.
struct OneEnd {
  OneEnd() {
    for (auto& one : net::loopback_world(3)) links.push_back(std::move(one));
    const std::vector<Rank> all{Rank{0}, Rank{1}, Rank{2}};
    channel = std::make_unique<PeerChannel>(std::make_shared<ChannelCore>(links[0], all, 0, kChannel, std::make_shared<MovedCounters>()));
  }
  void say(int from, ConstBytes bytes, std::uint32_t number = 0) {
    links[static_cast<std::size_t>(from)]->link(Rank{0}).send(bytes, {kChannel, number}).wait(Deadline::in(1s));
  }
  Pending recv(int from, std::uint32_t& into) { return channel->recv(Rank{from}, 1, {&into, sizeof into, Dtype::u8, Device::cpu}); }
  std::vector<std::shared_ptr<net::PeerLinks>> links;
  std::unique_ptr<PeerChannel> channel;
};

Error failure_of(Pending& pending) {
  try {
    pending.wait(Deadline::in(1s));
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {};
}

TEST(ChannelCore, BytesThatAreNoRecordFailThatPeerAlone) {
  OneEnd one;
  std::uint32_t never = 0, got = 0;
  auto receiving = one.recv(1, never);
  one.say(1, bytes_of("garbage"));
  const Error error = failure_of(receiving);
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("rank 1 sent 8 bytes that are no record"));
  ASSERT_TRUE(one.channel->lost(Rank{1}));
  EXPECT_FALSE(one.links[0]->failure(Rank{1})) << "the link is not the channel's to fail";
  const std::uint32_t value = 77;
  one.say(2, encode({.kind = Record::Kind::announce_inline, .tag = 1, .length = 4}, bytes_of(value)));
  auto other = one.recv(2, got);
  other.wait(Deadline::in(1s));
  EXPECT_EQ(got, 77U);
}

TEST(ChannelCore, RecordsAboutMessagesThatItDoesNotKnowChangeNothing) {
  OneEnd one;
  using enum Record::Kind;
  for (const Record::Kind kind : {grant, refuse, withdraw, received})
    one.say(1, encode({.kind = kind, .tag = 1, .id = 99, .length = ~0ULL}));
  std::uint32_t got = 0;
  const std::uint32_t value = 5;
  one.say(1, encode({.kind = announce_eager, .tag = 1, .id = 3, .length = 4}));
  one.say(1, bytes_of(value), kCollectiveTags | 3);
  one.recv(1, got).wait(Deadline::in(1s));
  EXPECT_EQ(got, 5U);
}

TEST(ChannelCore, AnAnnouncedLengthAllocatesNothing) {
  OneEnd one;
  one.say(1, encode({.kind = Record::Kind::announce, .tag = 1, .id = 3, .length = ~0ULL}));
  std::uint32_t got = 0;
  auto receiving = one.recv(1, got);
  EXPECT_EQ(failure_of(receiving).kind, Kind::corrupt);
}

}  // namespace
}  // namespace cohort::collective
