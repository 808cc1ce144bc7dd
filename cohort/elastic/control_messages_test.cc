#include "cohort/elastic/control_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const group::Member kMember{Rank{0}, "127.0.0.1:40123", 4711, "here"};
const group::Roster kRoster{"job", Epoch{7}, {kMember, {Rank{1}, "127.0.0.1:40124", 4712, "here"}}};
const Error kError{Kind::peer_lost, "the job went on", Rank{3}};

std::vector<ElasticEvent> events() {
  return {Arrive{.worker = {WorkerId{~0ull}, kMember}},
          Arrive{.worker = {WorkerId{9}, kMember},
                 .epoch = Epoch{5},
                 .sealed = true,
                 .settled = true,
                 .worker_progress = WorkerProgress{Epoch{5}, 12, true}},
          Heartbeat{},
          Reported{.epoch = Epoch{3}, .worker_progress = std::nullopt},
          Reported{.epoch = Epoch{3}, .worker_progress = WorkerProgress{Epoch{2}, 8, false}},
          Settled{.epoch = Epoch{3}, .step = 44},
          PeerUnreachable{.epoch = Epoch{3}, .about = Rank{2}},
          Leaving{.why = "SIGTERM"},
          Ended{.step = 100},
          StateTransferred{.epoch = Epoch{3}, .to = Rank{1}},
          StateTransferred{.epoch = Epoch{3}, .to = kNoRank},
          JobFailed{.error = kError}};
}

std::vector<ElasticAction> actions() {
  return {SealEpoch{{}, 2, Epoch{4}, true},
          BeginEpoch{0, 2, kRoster, Rank{1}, 17, Rank{0}},
          BeginEpoch{0, 2, kRoster, Rank{0}, std::nullopt, kNoRank},
          Release{0, true},
          Release{0, true, true},
          Evict{0, kError},
          group::Refuse{0, kError},
          Say{"waiting", {}},
          Alive{0, 4711, 600000, "node1"},
          Stop{{}, std::nullopt},
          Stop{{}, kError}};
}

// Nothing is lost: what was decoded encodes to the same bytes.
TEST(ControlMessages, AreDecodedAsTheyWereEncoded) {
  for (const auto& event : events()) {
    const net::Frame frame = encode_event(event);
    const net::Frame again = encode_event(decode_event(frame, 5));
    EXPECT_EQ(again.type, frame.type);
    EXPECT_EQ(again.body, frame.body) << frame.type;
  }
  for (const auto& action : actions()) {
    const net::Frame frame = encode_action(action);
    const net::Frame again = encode_action(decode_action(frame));
    EXPECT_EQ(again.type, frame.type);
    EXPECT_EQ(again.body, frame.body) << frame.type;
  }
}

TEST(ControlMessages, KeepTheirFields) {
  const auto arrive = std::get<Arrive>(decode_event(encode_event(events()[1]), 5));
  EXPECT_EQ(arrive.connection_id, 5);
  EXPECT_EQ(arrive.worker.id, WorkerId{9});
  EXPECT_EQ(arrive.worker.member, kMember);
  EXPECT_EQ(arrive.worker_progress, (WorkerProgress{Epoch{5}, 12, true}));
  EXPECT_TRUE(arrive.sealed && arrive.settled);
  const auto begin = std::get<BeginEpoch>(decode_action(encode_action(actions()[1])));
  EXPECT_EQ(begin.roster, kRoster);
  EXPECT_EQ(begin.base, 17);
  EXPECT_EQ(begin.heal_from, Rank{0});
  const auto stop = std::get<Stop>(decode_action(encode_action(actions().back())));
  EXPECT_EQ(stop.error->what, kError.what);
}

TEST(ControlMessages, AreRefusedWhenCutShortOrTooLong) {
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
        std::holds_alternative<Leaving>(event) || std::holds_alternative<JobFailed>(event));
  for (const auto& action : actions()) {
    const auto type = encode_action(action).type;
    const bool text = type == kSayFrame || type == kEvictFrame || type == kRefuseFrame || type == kStopFrame || type == kAliveFrame;
    both_ways(
        encode_action(action), [](const net::Frame& f) { return decode_action(f); }, text);
  }
}

TEST(ControlMessages, TheVersionOfAWorkerIsTheLastOfItsArrivalAndMayBeMissing) {
  const Arrive arrive{.worker = {WorkerId{9}, kMember}, .version = "2.0"};
  const net::Frame frame = encode_event(arrive);
  EXPECT_EQ(std::get<Arrive>(decode_event(frame, 1)).version, "2.0");
  const net::Frame older = encode_event(Arrive{.worker = arrive.worker});
  ASSERT_LT(older.body.size(), frame.body.size());
  EXPECT_TRUE(std::equal(older.body.begin(), older.body.end(), frame.body.begin()));
  EXPECT_EQ(std::get<Arrive>(decode_event(older, 1)).version, "");
  for (std::size_t n = older.body.size() + 1; n < frame.body.size(); ++n) {
    const net::Frame cut{frame.type, {frame.body.begin(), frame.body.begin() + static_cast<std::ptrdiff_t>(n)}};
    EXPECT_EQ(failure_of([&] { decode_event(cut, 1); }).kind, Kind::corrupt) << n;
  }
}

TEST(ControlMessages, AreRefusedWhenTheyAreImpossible) {
  EXPECT_EQ(failure_of([] { decode_event({0x0299, {}}, 1); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([] { decode_action({kArriveFrame, {}}); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([] { decode_action({kSayFrame, std::vector<std::byte>(kMaxTextBytes + 1)}); }).kind, Kind::corrupt);
  auto outside = encode_action(BeginEpoch{0, 2, kRoster, Rank{2}, 17, Rank{0}});
  EXPECT_EQ(failure_of([&] { decode_action(outside); }).kind, Kind::corrupt);
  auto from_itself = encode_action(BeginEpoch{0, 2, kRoster, Rank{1}, 17, Rank{1}});
  EXPECT_EQ(failure_of([&] { decode_action(from_itself); }).kind, Kind::corrupt);
  EXPECT_THAT(failure_of([] { encode_event(Tick{}); }).what, HasSubstr("is never sent"));
  EXPECT_THAT(failure_of([] { encode_action(Respawn{1}); }).what, HasSubstr("is never sent"));
}

TEST(ControlMessages, TruncateALongText) {
  const auto frame = encode_action(Say{std::string(3 * kMaxTextBytes, 'x'), {}});
  EXPECT_EQ(std::get<Say>(decode_action(frame)).text.size(), kMaxTextBytes);
}

TEST(ControlMessages, AreSentToTheirRecipients) {
  EXPECT_THAT(recipients(SealEpoch{{3, 4}, 1, Epoch{1}, false}), ElementsAre(3, 4));
  EXPECT_THAT(recipients(Release{6, false}), ElementsAre(6));
  EXPECT_THAT(recipients(Respawn{2}), IsEmpty());
}

}  // namespace
}  // namespace cohort::elastic
