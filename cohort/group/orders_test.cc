#include "cohort/group/orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::group {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Member kMember{Rank{0}, "127.0.0.1:40123", 4711, "here"};
const Roster kRoster{"job", Epoch{7}, {kMember, {Rank{1}, "127.0.0.1:40124", 4712, "here"}}};
const Error kError{Kind::peer_lost, "the job went on", Rank{3}};

std::vector<ElasticEvent> events() {
  return {
      Arrive{.worker = {WorkerId{~0ull}, kMember}},
      Arrive{
          .worker = {WorkerId{9}, kMember}, .epoch = Epoch{5}, .sealed = true, .settled = true, .standing = Standing{Epoch{5}, 12, true}},
      Heard{},
      Reported{.epoch = Epoch{3}, .standing = std::nullopt},
      Reported{.epoch = Epoch{3}, .standing = Standing{Epoch{2}, 8, false}},
      Settled{.epoch = Epoch{3}, .step = 44},
      Complained{.epoch = Epoch{3}, .about = Rank{2}},
      Leaving{.why = "SIGTERM"},
      Ended{.step = 100},
      Entrusted{.epoch = Epoch{3}, .to = Rank{1}},
      Entrusted{.epoch = Epoch{3}, .to = kNoRank},
      Condemned{.error = kError}};
}

std::vector<ElasticAction> orders() {
  return {Seal{{}, 2, Epoch{4}, true},
          Begin{0, 2, kRoster, Rank{1}, 17, Rank{0}},
          Begin{0, 2, kRoster, Rank{0}, std::nullopt, kNoRank},
          Release{0, true},
          Release{0, true, true},
          Evict{0, kError},
          Refuse{0, kError},
          Say{"waiting", {}},
          Stop{{}, std::nullopt},
          Stop{{}, kError}};
}

// The bytes say all that is known: what reads them makes the same again.
TEST(Orders, ComeOutAsTheyWentIn) {
  for (const auto& event : events()) {
    const net::Frame frame = encode_event(event);
    const net::Frame again = encode_event(decode_event(frame, 5));
    EXPECT_EQ(again.type, frame.type);
    EXPECT_EQ(again.body, frame.body) << frame.type;
  }
  for (const auto& order : orders()) {
    const net::Frame frame = encode_order(order);
    const net::Frame again = encode_order(decode_order(frame));
    EXPECT_EQ(again.type, frame.type);
    EXPECT_EQ(again.body, frame.body) << frame.type;
  }
}

TEST(Orders, KeepWhatTheySay) {
  const auto arrive = std::get<Arrive>(decode_event(encode_event(events()[1]), 5));
  EXPECT_EQ(arrive.guest, 5);
  EXPECT_EQ(arrive.worker.id, WorkerId{9});
  EXPECT_EQ(arrive.worker.member, kMember);
  EXPECT_EQ(arrive.standing, (Standing{Epoch{5}, 12, true}));
  EXPECT_TRUE(arrive.sealed && arrive.settled);
  const auto begin = std::get<Begin>(decode_order(encode_order(orders()[1])));
  EXPECT_EQ(begin.roster, kRoster);
  EXPECT_EQ(begin.base, 17);
  EXPECT_EQ(begin.heal_from, Rank{0});
  const auto stop = std::get<Stop>(decode_order(encode_order(orders().back())));
  EXPECT_EQ(stop.error->what, kError.what);
}

TEST(Orders, AreRefusedWhenCutShortOrTooLong) {
  const auto refused = [](const net::Frame& frame, auto decode) { return failure_of([&] { decode(frame); }).kind == Kind::corrupt; };
  const auto both_ways = [&](const net::Frame& whole, auto decode, bool open_end) {
    net::Frame longer = whole;
    longer.body.push_back(std::byte{0});
    EXPECT_TRUE(open_end || refused(longer, decode)) << whole.type;
    for (std::size_t n = 0; n < whole.body.size() && !open_end; ++n)
      EXPECT_TRUE(refused({whole.type, {whole.body.begin(), whole.body.begin() + static_cast<std::ptrdiff_t>(n)}}, decode)) << whole.type;
  };
  for (const auto& event : events())
    both_ways(
        encode_event(event), [](const net::Frame& f) { return decode_event(f, 1); },
        std::holds_alternative<Leaving>(event) || std::holds_alternative<Condemned>(event));
  for (const auto& order : orders()) {
    const auto type = encode_order(order).type;
    const bool text = type == kSayFrame || type == kEvictFrame || type == kRefuseFrame || (type == kStopFrame);
    both_ways(
        encode_order(order), [](const net::Frame& f) { return decode_order(f); }, text);
  }
}

TEST(Orders, AreRefusedWhenTheyCannotBe) {
  EXPECT_EQ(failure_of([] { decode_event({0x0299, {}}, 1); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([] { decode_order({kArriveFrame, {}}); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([] { decode_order({kSayFrame, std::vector<std::byte>(kMostWords + 1)}); }).kind, Kind::corrupt);
  auto outside = encode_order(Begin{0, 2, kRoster, Rank{2}, 17, Rank{0}});
  EXPECT_EQ(failure_of([&] { decode_order(outside); }).kind, Kind::corrupt);
  auto from_itself = encode_order(Begin{0, 2, kRoster, Rank{1}, 17, Rank{1}});
  EXPECT_EQ(failure_of([&] { decode_order(from_itself); }).kind, Kind::corrupt);
  EXPECT_THAT(failure_of([] { encode_event(Tick{}); }).what, HasSubstr("does not travel"));
  EXPECT_THAT(failure_of([] { encode_order(Respawn{1}); }).what, HasSubstr("does not travel"));
}

TEST(Orders, CutALongText) {
  const auto frame = encode_order(Say{std::string(3 * kMostWords, 'x'), {}});
  EXPECT_EQ(std::get<Say>(decode_order(frame)).text.size(), kMostWords);
}

TEST(Orders, GoToWhomTheyAreFor) {
  EXPECT_THAT(addressees(Seal{{3, 4}, 1, Epoch{1}, false}), ElementsAre(3, 4));
  EXPECT_THAT(addressees(Release{6, false}), ElementsAre(6));
  EXPECT_THAT(addressees(Respawn{2}), IsEmpty());
}

}  // namespace
}  // namespace cohort::group
