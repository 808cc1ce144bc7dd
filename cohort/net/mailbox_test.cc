#include "cohort/net/mailbox.h"

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

TEST(Mailbox, LandsStraightInThePostedBuffer) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(5);
  const auto receive = box.post(kPeer, kTag, buffer);
  auto landing = box.arrive(kPeer, kTag, 5);
  ASSERT_TRUE(landing);
  EXPECT_EQ(landing->room(99).data(), buffer.data());
  landing->filled(0);
  landing->copy(text("hel"));
  EXPECT_FALSE(receive->done());
  EXPECT_EQ(landing->room(1).data(), buffer.data() + 3);
  landing->filled(0);
  landing->copy(text("lo"));
  EXPECT_TRUE(landing->complete());
  box.landed(std::move(*landing));
  EXPECT_TRUE(receive->done());
  EXPECT_FALSE(receive->error());
  EXPECT_EQ(buffer, text("hello"));
}

TEST(Mailbox, KeepsWhatNobodyAskedForYet) {
  Mailbox box(kMe, 3);
  EXPECT_TRUE(box.deliver(kPeer, kTag, text("one")));
  EXPECT_TRUE(box.deliver(kPeer, kTag, text("two")));
  std::vector<std::byte> buffer(3);
  EXPECT_TRUE(box.post(kPeer, kTag, buffer)->done());
  EXPECT_EQ(buffer, text("one"));
  EXPECT_TRUE(box.post(kPeer, kTag, buffer)->done());
  EXPECT_EQ(buffer, text("two"));
  EXPECT_FALSE(box.post(kPeer, kTag, buffer)->done());
}

TEST(Mailbox, BindsAReceivePostedWhileTheMessageIsComing) {
  Mailbox box(kMe, 3);
  auto landing = box.arrive(kPeer, kTag, 4);
  landing->copy(text("ab"));
  std::vector<std::byte> first(4), second(1);
  const auto bound = box.post(kPeer, kTag, first), later = box.post(kPeer, kTag, second);
  landing->copy(text("cd"));
  box.landed(std::move(*landing));
  EXPECT_TRUE(bound->done());
  EXPECT_EQ(first, text("abcd"));
  EXPECT_FALSE(later->done());
  box.deliver(kPeer, kTag, text("e"));
  EXPECT_TRUE(later->done());
}

TEST(Mailbox, KeepsOrderWhenTheBoundReceiveIsCancelled) {
  Mailbox box(kMe, 3);
  auto landing = box.arrive(kPeer, kTag, 2);
  std::vector<std::byte> first(2), second(2);
  const auto bound = box.post(kPeer, kTag, first), later = box.post(kPeer, kTag, second);
  box.cancel(bound);
  landing->copy(text("ab"));
  box.landed(std::move(*landing));
  EXPECT_TRUE(later->done());
  EXPECT_EQ(second, text("ab"));
  EXPECT_EQ(first, std::vector<std::byte>(2));
}

TEST(Mailbox, StopsTouchingACancelledBuffer) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(4);
  const auto receive = box.post(kPeer, kTag, buffer);
  auto landing = box.arrive(kPeer, kTag, 4);
  landing->copy(text("ab"));
  box.cancel(receive);
  landing->copy(text("cd"));
  box.landed(std::move(*landing));
  EXPECT_EQ(buffer[0], std::byte{'a'});
  EXPECT_EQ(buffer[2], std::byte{0});
}

TEST(Mailbox, WaitsForAPinnedBufferBeforeItIsFree) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(4);
  const auto receive = box.post(kPeer, kTag, buffer);
  auto landing = box.arrive(kPeer, kTag, 4);
  const Bytes room = landing->room(4);
  std::atomic<bool> free{false};
  std::thread canceller([&] {
    box.cancel(receive);
    free = true;
  });
  for (int i = 0; i < 100; ++i) {
    room[static_cast<std::size_t>(i) % 4] = std::byte{1};
    ASSERT_FALSE(free);
    std::this_thread::yield();
  }
  landing->filled(4);
  canceller.join();
  EXPECT_TRUE(free);
}

TEST(Mailbox, NamesBothLengthsWhenTheyDiffer) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(10);
  const auto posted = box.post(kPeer, kTag, buffer);
  auto landing = box.arrive(kPeer, kTag, 7);
  landing->copy(text("1234567"));
  box.landed(std::move(*landing));
  ASSERT_TRUE(posted->done());
  EXPECT_EQ(posted->error()->kind, Kind::corrupt);
  EXPECT_THAT(posted->error()->what,
              ::testing::AllOf(HasSubstr("rank 1"), HasSubstr("7 bytes"), HasSubstr("10 were"), HasSubstr("tag 0:1")));
  box.deliver(kPeer, kTag, text("123"));
  EXPECT_EQ(box.post(kPeer, kTag, buffer)->error()->kind, Kind::corrupt);
  EXPECT_FALSE(box.failed(kPeer));
}

TEST(Mailbox, TakesTheOldestOfARangeFromAnyPeer) {
  Mailbox box(kMe, 3);
  box.deliver(kOther, {0, 5}, text("first"));
  box.deliver(kPeer, {0, 4}, text("second"));
  box.deliver(kPeer, {1, 4}, text("elsewhere"));
  box.deliver(kMe, {0, 6}, text("third"));
  for (const char* expected : {"first", "second", "third"}) EXPECT_EQ(box.take({0, 4, 6})->bytes, text(expected));
  EXPECT_FALSE(box.take({0, 0, 99}));
}

TEST(Mailbox, DiscardsEvenWhatIsStillComing) {
  Mailbox box(kMe, 3);
  box.deliver(kPeer, kTag, text("old"));
  auto landing = box.arrive(kPeer, kTag, 3);
  box.discard({0, 0, 9});
  landing->copy(text("old"));
  box.landed(std::move(*landing));
  EXPECT_FALSE(box.take({0, 0, 9}));
}

TEST(Mailbox, PausesAPeerWhoseUnclaimedMessagesFillTheirShare) {
  Mailbox box(kMe, 3, 10);
  EXPECT_TRUE(box.deliver(kPeer, {0, 1}, text("12345678")));
  EXPECT_FALSE(box.deliver(kPeer, {0, 2}, text("1234")));
  EXPECT_FALSE(box.arrive(kPeer, {0, 2}, ~0ULL));
  EXPECT_TRUE(box.deliver(kOther, {0, 2}, text("1234"))) << "another peer has its own share";
  EXPECT_FALSE(box.thaw(kPeer));
  ASSERT_TRUE(box.take({0, 1, 1}));
  EXPECT_TRUE(box.thaw(kPeer));
  EXPECT_FALSE(box.thaw(kPeer)) << "told once";
  EXPECT_TRUE(box.deliver(kPeer, {0, 2}, text("1234")));
}

TEST(Mailbox, GoesOnReadingWhileAReceiveWaits) {
  Mailbox box(kMe, 3, 10);
  EXPECT_FALSE(box.deliver(kPeer, {0, 1}, text("longer than ten")));
  std::vector<std::byte> buffer(1);
  const auto receive = box.post(kPeer, {0, 9}, buffer);  // may be behind it
  EXPECT_TRUE(box.thaw(kPeer));
  EXPECT_TRUE(box.deliver(kPeer, {0, 1}, text("longer than ten")));
  box.cancel(receive);
  EXPECT_FALSE(box.deliver(kPeer, {0, 1}, text("x")));
  box.wanting_any(1);
  EXPECT_TRUE(box.thaw(kPeer));
  EXPECT_TRUE(box.deliver(kPeer, {0, 1}, text("x")));
}

// Its receive is sure to come: until then it stays where it is, instead of being copied twice.
TEST(Mailbox, HoldsBackALargeMessageOfACollectiveUntilItsReceiveIsPosted) {
  constexpr Tag kCollective{0, kCollectiveTags}, kOwn{0, kCollectiveTags - 1};
  Mailbox box(kMe, 3);
  EXPECT_TRUE(box.arrive(kPeer, kCollective, Mailbox::kLargeBytes - 1)) << "small";
  EXPECT_TRUE(box.arrive(kPeer, kOwn, Mailbox::kLargeBytes)) << "a caller's own, whose receive may never come";
  EXPECT_TRUE(box.arrive(kMe, kCollective, Mailbox::kLargeBytes)) << "to oneself";
  EXPECT_FALSE(box.arrive(kPeer, kCollective, Mailbox::kLargeBytes));
  EXPECT_FALSE(box.thaw(kPeer));
  std::vector<std::byte> buffer(Mailbox::kLargeBytes);
  const auto receive = box.post(kPeer, {0, kCollectiveTags + 1}, buffer);
  EXPECT_TRUE(box.thaw(kPeer));
  EXPECT_TRUE(box.arrive(kPeer, kCollective, Mailbox::kLargeBytes)) << "another receive may wait for what is behind it";
  box.cancel(receive);
  EXPECT_FALSE(box.arrive(kPeer, kCollective, Mailbox::kLargeBytes));
  const auto other = box.post(kPeer, kTag, buffer);
  EXPECT_TRUE(box.thaw(kPeer));
}

TEST(Mailbox, HoldsBackLessTheMoreHasteIsMade) {
  constexpr Tag kCollective{0, kCollectiveTags};
  Mailbox box(kMe, 3, 1_MiB);
  EXPECT_FALSE(box.arrive(kPeer, kCollective, 1_MiB));
  EXPECT_TRUE(box.arrive(kPeer, kCollective, 1_MiB, Haste::soon));
  EXPECT_FALSE(box.arrive(kPeer, kCollective, 1, Haste::soon)) << "its share is full";
  EXPECT_TRUE(box.arrive(kPeer, kCollective, 1_MiB, Haste::now)) << "something behind it is waited for";
}

TEST(Mailbox, TakesNoMemoryForBytesThatDoNotCome) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(1);
  const auto waits = box.post(kPeer, {0, 9}, buffer);  // lifts the limit
  auto landing = box.arrive(kPeer, {0, 1}, 1ULL << 45);
  ASSERT_TRUE(landing);
  landing->copy(text("only this"));
  EXPECT_EQ(landing->left(), (1ULL << 45) - 9);
}

TEST(Mailbox, FailsOnceAndForAll) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(2);
  const auto posted = box.post(kPeer, kTag, buffer), landing_too = box.post(kPeer, {0, 2}, buffer);
  box.deliver(kPeer, {0, 3}, text("ab"));
  auto landing = box.arrive(kPeer, {0, 2}, 2);
  EXPECT_TRUE(box.fail(kPeer, {Kind::peer_lost, "gone", kPeer}));
  EXPECT_FALSE(box.fail(kPeer, {Kind::bug, "second", kPeer}));
  for (const auto& r : {posted, landing_too, box.post(kPeer, kTag, buffer), box.post(kPeer, {0, 3}, buffer)}) {
    ASSERT_TRUE(r->done());
    EXPECT_EQ(r->error()->what, "gone");
  }
  landing->copy(text("xy"));
  box.landed(std::move(*landing));
  EXPECT_EQ(buffer, std::vector<std::byte>(2)) << "a failed receive's buffer is its owner's";
  EXPECT_EQ(box.take({0, 3, 3})->bytes, text("ab")) << "what had arrived can still be taken";
  EXPECT_EQ(box.any_failure()->what, "gone");
  EXPECT_FALSE(box.failed(kOther));
}

TEST(Mailbox, KeepsTheLastWordsOfAPoliteLeaver) {
  Mailbox box(kMe, 3);
  std::vector<std::byte> buffer(2);
  const auto hopeless = box.post(kPeer, {0, 9}, buffer);
  box.deliver(kPeer, kTag, text("ab"));
  box.fail(kPeer, {Kind::peer_lost, "rank 1 left", kPeer}, true);
  EXPECT_EQ(hopeless->error()->what, "rank 1 left");
  const auto served = box.post(kPeer, kTag, buffer);
  ASSERT_TRUE(served->done());
  EXPECT_FALSE(served->error());
  EXPECT_EQ(buffer, text("ab"));
  EXPECT_EQ(box.post(kPeer, kTag, buffer)->error()->what, "rank 1 left");
}

TEST(Mailbox, RefusesRanksThatAreNotThere) {
  Mailbox box(kMe, 3);
  for (const int rank : {-1, 3}) {
    try {
      box.post(Rank{rank}, kTag, {});
      ADD_FAILURE() << "rank " << rank << " was accepted";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
    }
  }
}

}  // namespace
}  // namespace cohort::net
