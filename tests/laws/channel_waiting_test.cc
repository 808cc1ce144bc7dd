// Laws of a PeerChannel about waiting, on every transport: wait_any, deadlines, calls that are given up, wrong calls.
#include <time.h>

#include "tests/laws/channel_world.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kInline = PeerChannel::kInlineBytes, kEager = PeerChannel::kEagerBytes, kLarge = 16_MiB;

}  // namespace

TEST_P(ChannelLaws, WaitAnyFindsWhatHasEndedAndPassesOverEmptyOnes) {
  ChannelWorld some = world(3);
  Buffer a(4), b(4);
  std::vector<Pending> pendings(3);
  pendings[0] = some[0].recv(Rank{1}, 1, piece_of(a));
  pendings[2] = some[0].recv(Rank{2}, 1, piece_of(b));
  send_now(some[2], 0, 1, pattern(4, 2));
  EXPECT_EQ(some[0].wait_any(pendings, soon()), 2U);
  pendings[2].wait(at_once());
  EXPECT_FALSE(pendings[2]);
  send_now(some[1], 0, 1, pattern(4, 1));
  EXPECT_EQ(some[0].wait_any(pendings, soon()), 0U);
  pendings[0].wait(at_once());
  EXPECT_EQ(failure_of([&] { some[0].wait_any(pendings, soon()); }).kind, Kind::usage);
}

TEST_P(ChannelLaws, WaitAnyGivesEachItsTurnThoughAllAreReadyAllTheTime) {
  ChannelWorld some = world(2);
  constexpr std::size_t kCalls = 5, kRounds = 200;
  Buffer got(4);
  std::vector<Pending> pendings(kCalls);
  const auto refill = [&](std::size_t i) {
    send_now(some[1], 0, static_cast<std::uint32_t>(i), pattern(4, 1));
    pendings[i] = some[0].recv(Rank{1}, static_cast<std::uint32_t>(i), piece_of(got));
    for (const Deadline limit = soon(); !pendings[i].poll() && !limit.passed();) std::this_thread::yield();
  };
  for (std::size_t i = 0; i < kCalls; ++i) refill(i);
  std::vector<std::size_t> turns(kCalls, 0);
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::size_t i = some[0].wait_any(pendings, soon());
    ++turns[i];
    refill(i);
  }
  EXPECT_THAT(turns, ::testing::Each(kRounds / kCalls));
}

TEST_P(ChannelLaws, ADeadlineNamesTheCallAndTheNextStepAndLeavesAllUsable) {
  ChannelWorld some = world(3);
  const auto data = pattern(kLarge, 1);
  Buffer got(kLarge);
  auto receiving = some[0].recv(Rank{1}, 23, piece_of(got));
  const Error late = failure_of([&] { receiving.wait(at_once()); });
  EXPECT_EQ(late.kind, Kind::timeout);
  EXPECT_EQ(late.rank, Rank{1});
  EXPECT_THAT(late.what, AllOf(HasSubstr("rank 0"), HasSubstr("recv of 16777216 bytes from rank 1 (tag 23)"), HasSubstr("does rank 1 send"),
                               HasSubstr("wait again, or destroy")));
  auto sending = some[1].send(Rank{2}, 24, piece_of(data));
  EXPECT_THAT(failure_of([&] { sending.wait(at_once()); }).what,
              AllOf(HasSubstr("send of 16777216 bytes to rank 2 (tag 24)"), HasSubstr("rank 2 has posted no receive")));
  EXPECT_THAT(failure_of([&] {
                some[0].wait_any({&receiving, 1}, at_once());
              }).what,
              AllOf(HasSubstr("any of 1 calls"), HasSubstr("recv of 16777216 bytes from rank 1 (tag 23)")));
  auto answer = some[1].send(Rank{0}, 23, piece_of(data));  // each of them still ends well
  finish({&receiving, &answer});
  EXPECT_TRUE(got == data);
  std::fill(got.begin(), got.end(), std::byte{0});
  auto other = some[2].recv(Rank{1}, 24, piece_of(got));
  finish({&other, &sending});
  EXPECT_TRUE(got == data);
}

TEST_P(ChannelLaws, ALengthMismatchFailsBothEndsOfThatMessageAlone) {
  ChannelWorld both = world(2);
  for (const std::size_t size : {std::size_t{4}, kInline + 9, kEager, kEager + 9, kLarge})
    for (const std::size_t expected : {size - 1, size + 1, std::size_t{0}})
      for (const bool ahead : {true, false}) {
        const auto data = pattern(size, 3);
        Buffer wrong(expected), right(size);
        Pending receiving, sending;
        if (ahead) receiving = both[1].recv(Rank{0}, 5, piece_of(wrong));
        sending = both[0].send(Rank{1}, 5, piece_of(data));
        if (!ahead) receiving = both[1].recv(Rank{0}, 5, piece_of(wrong));
        drive({&receiving, &sending});
        const Error error = failure_of([&] { receiving.wait(soon()); });
        EXPECT_EQ(error.kind, Kind::corrupt) << error.what;
        EXPECT_THAT(error.what, AllOf(HasSubstr(std::to_string(size)), HasSubstr(std::to_string(expected))));
        if (size > kEager) {
          EXPECT_EQ(failure_of([&] { sending.wait(soon()); }).kind, Kind::corrupt);
        } else {
          sending.wait(soon());
        }
        receiving = both[1].recv(Rank{0}, 5, piece_of(right));
        sending = both[0].send(Rank{1}, 5, piece_of(data));
        finish({&receiving, &sending});
        EXPECT_TRUE(right == data);
      }
}

TEST_P(ChannelLaws, AReceiveThatIsGivenUpUnmetLeavesTheMessageToTheNext) {
  ChannelWorld both = world(2);
  for (const std::size_t size : {std::size_t{4}, kEager, kLarge}) {
    const auto data = pattern(size, 1);
    Buffer untouched(size, std::byte{0xAA}), got(size);
    { const auto one = both[0].recv(Rank{1}, 1, piece_of(untouched)); }
    auto sending = both[1].send(Rank{0}, 1, piece_of(data));
    auto receiving = both[0].recv(Rank{1}, 1, piece_of(got));
    finish({&sending, &receiving});
    EXPECT_TRUE(got == data);
    EXPECT_TRUE(untouched == Buffer(size, std::byte{0xAA}));
  }
}

// At whatever moment: `looks` says how often both ends have made progress before.
TEST_P(ChannelLaws, AReceiveThatIsGivenUpAfterItWasMetLosesThatMessageAndNoMore) {
  ChannelWorld both = world(2);
  const auto data = pattern(kLarge, 1), next = pattern(kLarge, 2);
  for (int looks = 0; looks < 6; ++looks) {
    Buffer buffer(kLarge), got(kLarge);
    auto first = both[1].send(Rank{0}, 1, piece_of(data)), second = both[1].send(Rank{0}, 1, piece_of(next));
    send_now(both[1], 0, 2, {});
    recv_now(both[0], 1, 2, 0);                                  // so the announcements before it are here, too
    auto given_up = both[0].recv(Rank{1}, 1, piece_of(buffer));  // meets the first message
    for (int i = 0; i < looks; ++i) first.poll(), given_up.poll();
    given_up = {};
    std::fill(buffer.begin(), buffer.end(), std::byte{0xAA});
    auto receiving = both[0].recv(Rank{1}, 1, piece_of(got));
    finish({&first, &second, &receiving});
    EXPECT_TRUE(got == next);
    EXPECT_TRUE(buffer == Buffer(kLarge, std::byte{0xAA})) << "touched after it was given up";
  }
}

TEST_P(ChannelLaws, ASendThatIsGivenUpUnmetFailsTheReceiveThatMeetsItAndNoOther) {
  ChannelWorld both = world(2);
  const auto data = pattern(kLarge, 1);
  for (const bool ahead : {true, false}) {
    Buffer first(kLarge), second(kLarge);
    Pending meets;
    {
      const auto given_up = both[1].send(Rank{0}, 1, piece_of(data));
      if (ahead) {
        meets = both[0].recv(Rank{1}, 1, piece_of(first));
        send_now(both[1], 0, 2, {});
        recv_now(both[0], 1, 2, 0);  // the announcement has come, and is granted
      }
    }
    if (!ahead) meets = both[0].recv(Rank{1}, 1, piece_of(first));
    auto sending = both[1].send(Rank{0}, 1, piece_of(data));
    auto receiving = both[0].recv(Rank{1}, 1, piece_of(second));
    drive({&meets, &sending, &receiving});
    const Error error = failure_of([&] { meets.wait(soon()); });
    EXPECT_EQ(error.kind, Kind::aborted) << error.what;
    EXPECT_THAT(error.what, AllOf(HasSubstr("from rank 1 (tag 1)"), HasSubstr("gave up")));
    finish({&sending, &receiving});
    EXPECT_TRUE(second == data);
  }
}

TEST_P(ChannelLaws, ASendThatIsGivenUpOnItsWayArrivesThoughItsMemoryIsUsedAgain) {
  ChannelWorld both = world(2);
  const auto data = pattern(kLarge, 1);
  Buffer lent = data, got(kLarge);
  auto receiving = both[0].recv(Rank{1}, 1, piece_of(got));
  auto sending = both[1].send(Rank{0}, 1, piece_of(lent));
  send_now(both[1], 0, 2, {});
  recv_now(both[0], 1, 2, 0);  // granted
  send_now(both[0], 1, 2, {});
  recv_now(both[1], 0, 2, 0);  // and begun
  auto reader = std::async(std::launch::async, [&] {
    receiving.wait(soon());
    send_now(both[0], 1, 9, {});
  });
  sending = {};
  std::fill(lent.begin(), lent.end(), std::byte{0});
  recv_now(both[1], 0, 9, 0);  // makes progress meanwhile
  reader.get();
  EXPECT_TRUE(got == data);
}

TEST_P(ChannelLaws, WrongCallsAreRefusedAndChangeNothing) {
  ChannelWorld both = world(2);
  Buffer data(4);
  EXPECT_THAT(failure_of([&] { both[0].send(Rank{2}, 1, piece_of(data)); }).what, HasSubstr("rank 2 is not one of 0 .. 1"));
  EXPECT_EQ(failure_of([&] { both[0].recv(kNoRank, 1, piece_of(data)); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([&] { both[0].recv(Rank{1}, 1, {data.data(), 4, Dtype::u8, Device::cuda}); }).what, HasSubstr("CPU memory"));
  EXPECT_THAT(failure_of([&] { both[0].send(Rank{1}, 1, {nullptr, 4, Dtype::u8}); }).what, HasSubstr("null pointer"));
  const auto other = both.comm(0).channel();
  auto theirs = other->recv(Rank{1}, 1, piece_of(data));
  EXPECT_THAT(failure_of([&] { both[0].wait_any({&theirs, 1}, soon()); }).what, HasSubstr("another channel"));
  send_now(both[1], 0, 1, pattern(4, 1));
  EXPECT_EQ(recv_now(both[0], 1, 1, 4), pattern(4, 1));
}

TEST_P(ChannelLaws, AnInterruptEndsEveryWaitOnThisRankAndNoneElsewhere) {
  ChannelWorld both = world(2);
  Buffer got(4), other(4);
  auto receiving = both[0].recv(Rank{1}, 1, piece_of(got));
  auto waiter = std::async(std::launch::async, [&] { return failure_of([&] { receiving.wait(soon()); }); });
  both[0].interrupt();
  EXPECT_THAT(waiter.get().what, HasSubstr("interrupted"));
  EXPECT_THROW(both[0].wait_any({&receiving, 1}, soon()), Interrupted);
  auto sending = both[1].send(Rank{1}, 1, piece_of(other));
  sending.wait(soon());
}

TEST_P(ChannelLaws, AWaitingThreadUsesLittleCpu) {
  ChannelWorld both = world(2);
  Buffer got(4);
  auto receiving = both[0].recv(Rank{1}, 1, piece_of(got));
  const auto cpu_ms = [] {
    timespec at{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return static_cast<double>(at.tv_sec) * 1e3 + static_cast<double>(at.tv_nsec) / 1e6;
  };
  const double before = cpu_ms();
  EXPECT_EQ(failure_of([&] { receiving.wait(Deadline::in(200ms)); }).kind, Kind::timeout);
  EXPECT_LT(cpu_ms() - before, 100);  // of 200: a share, not a duration
}

}  // namespace cohort::collective
