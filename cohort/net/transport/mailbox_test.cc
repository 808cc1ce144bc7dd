#include "cohort/net/transport/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace cohort::net {
namespace {

using ::testing::HasSubstr;
constexpr Rank kMe{0}, kPeer{1}, kOther{2};
constexpr Tag kTag{0, 1};

std::vector<std::byte> text(std::string_view words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

TEST(Mailbox, WritesStraightIntoThePostedBuffer) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(5);
  const auto receive = mailbox.post(kPeer, kTag, buffer);
  auto slot = mailbox.arrive(kPeer, kTag, 5);
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->space(99).data(), buffer.data());
  slot->filled(0);
  slot->copy(text("hel"));
  EXPECT_FALSE(receive->done());
  EXPECT_EQ(slot->space(1).data(), buffer.data() + 3);
  slot->filled(0);
  slot->copy(text("lo"));
  EXPECT_TRUE(slot->complete());
  mailbox.finish(std::move(*slot));
  EXPECT_TRUE(receive->done());
  EXPECT_FALSE(receive->error());
  EXPECT_EQ(buffer, text("hello"));
}

TEST(Mailbox, KeepsUnexpectedMessages) {
  Mailbox mailbox(kMe, 3);
  EXPECT_TRUE(mailbox.deliver(kPeer, kTag, text("one")));
  EXPECT_TRUE(mailbox.deliver(kPeer, kTag, text("two")));
  std::vector<std::byte> buffer(3);
  EXPECT_TRUE(mailbox.post(kPeer, kTag, buffer)->done());
  EXPECT_EQ(buffer, text("one"));
  EXPECT_TRUE(mailbox.post(kPeer, kTag, buffer)->done());
  EXPECT_EQ(buffer, text("two"));
  EXPECT_FALSE(mailbox.post(kPeer, kTag, buffer)->done());
}

TEST(Mailbox, BindsAReceivePostedWhileTheMessageIsComing) {
  Mailbox mailbox(kMe, 3);
  auto slot = mailbox.arrive(kPeer, kTag, 4);
  slot->copy(text("ab"));
  std::vector<std::byte> first(4), second(1);
  const auto bound = mailbox.post(kPeer, kTag, first), later = mailbox.post(kPeer, kTag, second);
  slot->copy(text("cd"));
  mailbox.finish(std::move(*slot));
  EXPECT_TRUE(bound->done());
  EXPECT_EQ(first, text("abcd"));
  EXPECT_FALSE(later->done());
  mailbox.deliver(kPeer, kTag, text("e"));
  EXPECT_TRUE(later->done());
}

TEST(Mailbox, KeepsOrderWhenTheBoundReceiveIsCancelled) {
  Mailbox mailbox(kMe, 3);
  auto slot = mailbox.arrive(kPeer, kTag, 2);
  std::vector<std::byte> first(2), second(2);
  const auto bound = mailbox.post(kPeer, kTag, first), later = mailbox.post(kPeer, kTag, second);
  mailbox.cancel(bound);
  slot->copy(text("ab"));
  mailbox.finish(std::move(*slot));
  EXPECT_TRUE(later->done());
  EXPECT_EQ(second, text("ab"));
  EXPECT_EQ(first, std::vector<std::byte>(2));
}

TEST(Mailbox, StopsTouchingACancelledBuffer) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(4);
  const auto receive = mailbox.post(kPeer, kTag, buffer);
  auto slot = mailbox.arrive(kPeer, kTag, 4);
  slot->copy(text("ab"));
  mailbox.cancel(receive);
  slot->copy(text("cd"));
  mailbox.finish(std::move(*slot));
  EXPECT_EQ(buffer[0], std::byte{'a'});
  EXPECT_EQ(buffer[2], std::byte{0});
}

TEST(Mailbox, WaitsForAPinnedBufferBeforeItIsFree) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(4);
  const auto receive = mailbox.post(kPeer, kTag, buffer);
  auto slot = mailbox.arrive(kPeer, kTag, 4);
  const Bytes space = slot->space(4);
  std::atomic<bool> free{false};
  std::thread canceller([&] {
    mailbox.cancel(receive);
    free = true;
  });
  for (int i = 0; i < 100; ++i) {
    space[static_cast<std::size_t>(i) % 4] = std::byte{1};
    ASSERT_FALSE(free);
    std::this_thread::yield();
  }
  slot->filled(4);
  canceller.join();
  EXPECT_TRUE(free);
}

TEST(Mailbox, NamesBothLengthsWhenTheyDiffer) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(10);
  const auto posted = mailbox.post(kPeer, kTag, buffer);
  auto slot = mailbox.arrive(kPeer, kTag, 7);
  slot->copy(text("1234567"));
  mailbox.finish(std::move(*slot));
  ASSERT_TRUE(posted->done());
  EXPECT_EQ(posted->error()->kind, Kind::corrupt);
  EXPECT_THAT(posted->error()->what,
              ::testing::AllOf(HasSubstr("rank 1"), HasSubstr("7 bytes"), HasSubstr("10 were"), HasSubstr("tag 0:1")));
  mailbox.deliver(kPeer, kTag, text("123"));
  EXPECT_EQ(mailbox.post(kPeer, kTag, buffer)->error()->kind, Kind::corrupt);
  EXPECT_FALSE(mailbox.failed(kPeer));
}

TEST(Mailbox, TakesTheOldestOfARangeFromAnyPeer) {
  Mailbox mailbox(kMe, 3);
  mailbox.deliver(kOther, {0, 5}, text("first"));
  mailbox.deliver(kPeer, {0, 4}, text("second"));
  mailbox.deliver(kPeer, {1, 4}, text("elsewhere"));
  mailbox.deliver(kMe, {0, 6}, text("third"));
  for (const char* expected : {"first", "second", "third"}) EXPECT_EQ(mailbox.take({0, 4, 6})->bytes, text(expected));
  EXPECT_FALSE(mailbox.take({0, 0, 99}));
}

TEST(Mailbox, DiscardsEvenWhatIsStillComing) {
  Mailbox mailbox(kMe, 3);
  mailbox.deliver(kPeer, kTag, text("old"));
  auto slot = mailbox.arrive(kPeer, kTag, 3);
  mailbox.discard({0, 0, 9});
  slot->copy(text("old"));
  mailbox.finish(std::move(*slot));
  EXPECT_FALSE(mailbox.take({0, 0, 9}));
}

TEST(Mailbox, PausesAPeerWhoseUnexpectedMessagesReachTheirLimit) {
  Mailbox mailbox(kMe, 3, 10);
  EXPECT_TRUE(mailbox.deliver(kPeer, {0, 1}, text("12345678")));
  EXPECT_FALSE(mailbox.deliver(kPeer, {0, 2}, text("1234")));
  EXPECT_FALSE(mailbox.arrive(kPeer, {0, 2}, ~0ULL));
  EXPECT_TRUE(mailbox.deliver(kOther, {0, 2}, text("1234"))) << "each peer has its own limit";
  EXPECT_FALSE(mailbox.take_resume(kPeer));
  ASSERT_TRUE(mailbox.take({0, 1, 1}));
  EXPECT_TRUE(mailbox.take_resume(kPeer));
  EXPECT_FALSE(mailbox.take_resume(kPeer)) << "reported once";
  EXPECT_TRUE(mailbox.deliver(kPeer, {0, 2}, text("1234")));
}

TEST(Mailbox, GoesOnReadingWhileAReceiveWaits) {
  Mailbox mailbox(kMe, 3, 10);
  EXPECT_FALSE(mailbox.deliver(kPeer, {0, 1}, text("longer than ten")));
  std::vector<std::byte> buffer(1);
  const auto receive = mailbox.post(kPeer, {0, 9}, buffer);  // its message may be behind it
  EXPECT_TRUE(mailbox.take_resume(kPeer));
  EXPECT_TRUE(mailbox.deliver(kPeer, {0, 1}, text("longer than ten")));
  mailbox.cancel(receive);
  EXPECT_FALSE(mailbox.deliver(kPeer, {0, 1}, text("x")));
  mailbox.add_any_waiters(1);
  EXPECT_TRUE(mailbox.take_resume(kPeer));
  EXPECT_TRUE(mailbox.deliver(kPeer, {0, 1}, text("x")));
}

// Its receive will be posted: until then it stays in the transport, instead of being copied twice.
TEST(Mailbox, HoldsBackALargeMessageOfACollectiveUntilItsReceiveIsPosted) {
  constexpr Tag kCollective{0, kCollectiveTags}, kOwn{0, kCollectiveTags - 1};
  Mailbox mailbox(kMe, 3);
  EXPECT_TRUE(mailbox.arrive(kPeer, kCollective, Mailbox::kLargeBytes - 1)) << "small";
  EXPECT_TRUE(mailbox.arrive(kPeer, kOwn, Mailbox::kLargeBytes)) << "a caller's own tag, whose receive may never be posted";
  EXPECT_TRUE(mailbox.arrive(kMe, kCollective, Mailbox::kLargeBytes)) << "to oneself";
  EXPECT_FALSE(mailbox.arrive(kPeer, kCollective, Mailbox::kLargeBytes));
  EXPECT_FALSE(mailbox.take_resume(kPeer));
  std::vector<std::byte> buffer(Mailbox::kLargeBytes);
  const auto receive = mailbox.post(kPeer, {0, kCollectiveTags + 1}, buffer);
  EXPECT_TRUE(mailbox.take_resume(kPeer));
  EXPECT_TRUE(mailbox.arrive(kPeer, kCollective, Mailbox::kLargeBytes)) << "another receive may wait for what is behind it";
  mailbox.cancel(receive);
  EXPECT_FALSE(mailbox.arrive(kPeer, kCollective, Mailbox::kLargeBytes));
  const auto other = mailbox.post(kPeer, kTag, buffer);
  EXPECT_TRUE(mailbox.take_resume(kPeer));
}

TEST(Mailbox, HoldsBackLessTheMoreUrgentItIs) {
  constexpr Tag kCollective{0, kCollectiveTags};
  Mailbox mailbox(kMe, 3, 1_MiB);
  EXPECT_FALSE(mailbox.arrive(kPeer, kCollective, 1_MiB));
  EXPECT_TRUE(mailbox.arrive(kPeer, kCollective, 1_MiB, ReadUrgency::soon));
  EXPECT_FALSE(mailbox.arrive(kPeer, kCollective, 1, ReadUrgency::soon)) << "its limit is reached";
  EXPECT_TRUE(mailbox.arrive(kPeer, kCollective, 1_MiB, ReadUrgency::now)) << "something behind it is waited for";
}

TEST(Mailbox, AllocatesNothingForBytesThatDoNotCome) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(1);
  const auto waits = mailbox.post(kPeer, {0, 9}, buffer);  // lifts the limit
  auto slot = mailbox.arrive(kPeer, {0, 1}, 1ULL << 45);
  ASSERT_TRUE(slot);
  slot->copy(text("only this"));
  EXPECT_EQ(slot->left(), (1ULL << 45) - 9);
}

TEST(Mailbox, FailsWithTheFirstErrorForGood) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(2);
  const auto posted = mailbox.post(kPeer, kTag, buffer), filling_too = mailbox.post(kPeer, {0, 2}, buffer);
  mailbox.deliver(kPeer, {0, 3}, text("ab"));
  auto slot = mailbox.arrive(kPeer, {0, 2}, 2);
  EXPECT_TRUE(mailbox.fail(kPeer, {Kind::peer_lost, "gone", kPeer}));
  EXPECT_FALSE(mailbox.fail(kPeer, {Kind::bug, "second", kPeer}));
  for (const auto& r : {posted, filling_too, mailbox.post(kPeer, kTag, buffer), mailbox.post(kPeer, {0, 3}, buffer)}) {
    ASSERT_TRUE(r->done());
    EXPECT_EQ(r->error()->what, "gone");
  }
  slot->copy(text("xy"));
  mailbox.finish(std::move(*slot));
  EXPECT_EQ(buffer, std::vector<std::byte>(2)) << "a failed receive's buffer is its owner's";
  EXPECT_EQ(mailbox.take({0, 3, 3})->bytes, text("ab")) << "what had arrived can still be taken";
  EXPECT_EQ(mailbox.any_failure()->what, "gone");
  EXPECT_FALSE(mailbox.failed(kOther));
}

TEST(Mailbox, DeliversWhatAPeerSentBeforeItsGoodbye) {
  Mailbox mailbox(kMe, 3);
  std::vector<std::byte> buffer(2);
  const auto unserved = mailbox.post(kPeer, {0, 9}, buffer);
  mailbox.deliver(kPeer, kTag, text("ab"));
  mailbox.fail(kPeer, {Kind::peer_lost, "rank 1 left", kPeer}, true);
  EXPECT_EQ(unserved->error()->what, "rank 1 left");
  const auto served = mailbox.post(kPeer, kTag, buffer);
  ASSERT_TRUE(served->done());
  EXPECT_FALSE(served->error());
  EXPECT_EQ(buffer, text("ab"));
  EXPECT_EQ(mailbox.post(kPeer, kTag, buffer)->error()->what, "rank 1 left");
}

TEST(Mailbox, RefusesRanksThatAreNotThere) {
  Mailbox mailbox(kMe, 3);
  for (const int rank : {-1, 3}) {
    try {
      mailbox.post(Rank{rank}, kTag, {});
      ADD_FAILURE() << "rank " << rank << " was accepted";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
    }
  }
}

}  // namespace
}  // namespace cohort::net
