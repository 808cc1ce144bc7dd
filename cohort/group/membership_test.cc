#include "cohort/group/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/text.h"

namespace cohort::group {
namespace {

using testing::HasSubstr;

constexpr int kSize = 3;
MembershipRules rules() { return {.job = "j", .size = kSize, .start_timeout = 30, .warn_after = 3, .warn_every = 10}; }

Join wish(int rank, int size = kSize) {
  return {{Rank{rank}, fmt::format("127.0.0.1:{}", 100 + rank), 1000 + rank, "here"}, static_cast<std::uint32_t>(size)};
}

// One word per action, so that a whole story fits in a row.
std::string brief(const Actions& actions) {
  std::vector<std::string> words;
  for (const Action& action : actions) {
    if (const auto* w = std::get_if<Welcome>(&action))
      words.push_back(fmt::format("welcome({},epoch {})", w->guests.size(), w->roster.epoch.value));
    if (const auto* r = std::get_if<Refuse>(&action)) words.push_back(fmt::format("refuse(guest {})", r->guest));
    if (const auto* w = std::get_if<Warn>(&action)) words.push_back(fmt::format("warn({})", w->guests.size()));
    if (const auto* g = std::get_if<GiveUp>(&action))
      words.push_back(fmt::format("give_up({},{})", kind_name(g->error.kind), g->guests.size()));
  }
  return join(words, " ");
}

struct Event {
  enum What { join, left, ended, tick } what;
  int who;  // rank of join and ended; guest of left (guest = 10 + rank unless said)
  double at;
  std::string expected;
};

struct Story {
  const char* name;
  std::vector<Event> events;
};

class MembershipStories : public testing::TestWithParam<Story> {};

TEST_P(MembershipStories, EndsAsTold) {
  Membership m(rules());
  for (const Event& e : GetParam().events) {
    SCOPED_TRACE(fmt::format("at {} s, event {} of {}", e.at, static_cast<int>(e.what), e.who));
    Actions actions;
    if (e.what == Event::join) actions = m.join(10 + e.who, wish(e.who), e.at);
    if (e.what == Event::left) actions = m.left(e.who, e.at);
    if (e.what == Event::ended) actions = m.ended(Rank{e.who}, "exit status 1");
    if (e.what == Event::tick) actions = m.tick(e.at);
    EXPECT_EQ(brief(actions), e.expected);
  }
}

using E = Event;
INSTANTIATE_TEST_SUITE_P(
    Table, MembershipStories,
    testing::Values(
        Story{"AllJoin", {{E::join, 2, 0, ""}, {E::join, 0, 1, ""}, {E::join, 1, 2, "welcome(3,epoch 0)"}, {E::tick, 0, 99, ""}}},
        Story{"AnotherEpochFollows",
              {{E::join, 0, 0, ""},
               {E::join, 1, 0, ""},
               {E::join, 2, 0, "welcome(3,epoch 0)"},
               {E::join, 1, 50, ""},
               {E::tick, 0, 52, ""},
               {E::join, 0, 52, ""},
               {E::join, 2, 52, "welcome(3,epoch 1)"}}},
        Story{"TheMissingAreNamedThenGivenUp",
              {{E::join, 0, 5, ""},
               {E::tick, 0, 7.9, ""},
               {E::tick, 0, 8, "warn(1)"},
               {E::tick, 0, 17.9, ""},
               {E::join, 1, 17.9, ""},
               {E::tick, 0, 18, "warn(2)"},
               {E::tick, 0, 35, "give_up(timeout,2)"},
               {E::tick, 0, 36, ""}}},
        Story{"ASecondClaimIsRefusedWithoutHarm",
              {{E::join, 0, 0, ""}, {E::join, 0, 0, "refuse(guest 10)"}, {E::join, 1, 0, ""}, {E::join, 2, 0, "welcome(3,epoch 0)"}}},
        Story{"ARankThatStraysMayComeBack",
              {{E::join, 0, 0, ""},
               {E::join, 1, 0, ""},
               {E::left, 11, 1, ""},
               {E::join, 2, 1, ""},
               {E::tick, 0, 3, "warn(2)"},
               {E::join, 1, 4, "welcome(3,epoch 0)"}}},
        Story{"ADeathEndsTheWaitAtOnce", {{E::join, 0, 0, ""}, {E::join, 1, 0, ""}, {E::ended, 2, 0, "give_up(peer_lost,2)"}}},
        Story{"ADeathAfterJoiningEndsItToo", {{E::join, 0, 0, ""}, {E::join, 1, 0, ""}, {E::ended, 1, 0, "give_up(peer_lost,1)"}}},
        Story{"ADeathBeforeAnyoneWaitsIsRemembered",
              {{E::ended, 2, 0, ""}, {E::join, 0, 1, "give_up(peer_lost,1)"}, {E::join, 1, 1, "give_up(peer_lost,1)"}}},
        Story{"StrangersWhoLeaveChangeNothing", {{E::left, 99, 0, ""}, {E::join, 0, 0, ""}, {E::left, 99, 0, ""}}}),
    [](const auto& story) { return story.param.name; });

TEST(Membership, RosterListsEveryMemberByRank) {
  Membership m(rules());
  m.join(7, wish(2), 0);
  m.join(8, wish(1), 0);
  const auto actions = m.join(9, wish(0), 0);
  const auto& welcome = std::get<Welcome>(actions.at(0));
  EXPECT_EQ(welcome.guests, (std::vector<Guest>{9, 8, 7}));
  for (int r = 0; r < kSize; ++r) EXPECT_EQ(welcome.roster.members[static_cast<std::size_t>(r)], wish(r).member);
}

TEST(Membership, WordsNameTheMissingRanksAndTheCause) {
  Membership m(rules());
  m.join(1, wish(1), 0);
  EXPECT_EQ(std::get<Warn>(m.tick(3).at(0)).text, "waiting for ranks 0 and 2 of 3 (3 s of 30 s): ranks 0 and 2 of 3 have not joined");
  m.join(2, wish(0), 0);
  m.left(1, 4);
  const Error late = std::get<GiveUp>(m.tick(30).at(0)).error;
  EXPECT_THAT(late.what, HasSubstr("ranks 1 and 2 of 3 have not joined (rank 1: process 1001 on here joined and went away) within 30 s"));
  m.join(3, wish(0), 40);
  const Error dead = std::get<GiveUp>(m.ended(Rank{2}, "killed by SIGSEGV").at(0)).error;
  EXPECT_THAT(dead.what, HasSubstr("rank 2 of 3 ended before all had joined (killed by SIGSEGV)"));
  EXPECT_EQ(dead.rank, Rank{2});
}

TEST(Membership, WrongSizesAndRanksAreRefused) {
  Membership m(rules());
  EXPECT_THAT(std::get<Refuse>(m.join(1, wish(1, 4), 0).at(0)).error.what, HasSubstr("rank 1 believes in 4 ranks, job 'j' has 3"));
  EXPECT_THAT(std::get<Refuse>(m.join(1, wish(3), 0).at(0)).error.what, HasSubstr("rank 3 does not exist"));
  EXPECT_FALSE(m.gathering());
}

TEST(Roster, SurvivesItsJourney) {
  const Roster roster{"job 1", Epoch{7}, {wish(0).member, wish(1).member}};
  EXPECT_EQ(decode_roster(encode(roster)), roster);
  const Join back = decode_join(encode(wish(2)));
  EXPECT_EQ(back.member, wish(2).member);
  EXPECT_EQ(back.size, 3u);
}

TEST(Roster, RefusesEveryTruncationAndExtraBytes) {
  auto bytes = encode(Roster{"j", Epoch{1}, {wish(0).member, wish(1).member}});
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(decode_roster(ConstBytes(bytes).first(n)), Failure) << n;
  bytes.push_back(std::byte{0});
  EXPECT_THROW(decode_roster(bytes), Failure);
  bytes.assign(16, std::byte{0xff});  // a length field beyond all caps
  EXPECT_THROW(decode_roster(bytes), Failure);
}

TEST(Roster, RanksAreNamedTheWayPeopleListThem) {
  const auto some = [](int n) {
    std::vector<Rank> ranks;
    for (int r = 0; r < n; ++r) ranks.push_back(Rank{r});
    return ranks;
  };
  EXPECT_EQ(name_ranks(some(1)), "rank 0");
  EXPECT_EQ(name_ranks(some(2)), "ranks 0 and 1");
  EXPECT_EQ(name_ranks(some(3)), "ranks 0, 1 and 2");
  EXPECT_THAT(name_ranks(some(100)), HasSubstr("15 and 84 more"));
}

}  // namespace
}  // namespace cohort::group
