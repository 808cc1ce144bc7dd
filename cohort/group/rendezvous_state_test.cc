#include "cohort/group/rendezvous_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/text.h"

namespace cohort::group {
namespace {

using testing::HasSubstr;

constexpr int kSize = 3;
RendezvousRules rules() { return {.job = "j", .size = kSize, .start_timeout = 30, .warn_after = 3, .warn_every = 10, .version = "2.0"}; }

Join request(int rank, int size = kSize) {
  return {{Rank{rank}, fmt::format("127.0.0.1:{}", 100 + rank), 1000 + rank, "here"}, static_cast<std::uint32_t>(size), "2.0"};
}

// One word per action, so that a whole sequence fits in a row.
std::string brief(const Actions& actions) {
  std::vector<std::string> words;
  for (const Action& action : actions) {
    if (const auto* w = std::get_if<Welcome>(&action))
      words.push_back(fmt::format("welcome({},epoch {})", w->connection_ids.size(), w->roster.epoch.value));
    if (const auto* r = std::get_if<Refuse>(&action)) words.push_back(fmt::format("refuse(connection {})", r->connection_id));
    if (const auto* w = std::get_if<Warn>(&action)) words.push_back(fmt::format("warn({})", w->connection_ids.size()));
    if (const auto* g = std::get_if<GiveUp>(&action))
      words.push_back(fmt::format("give_up({},{})", kind_name(g->error.kind), g->connection_ids.size()));
  }
  return join(words, " ");
}

struct Event {
  enum What { join, left, ended, tick } what;
  int who;  // rank of join and ended; connection of left (10 + rank unless stated otherwise)
  double at;
  std::string expected;
};

struct Sequence {
  const char* name;
  std::vector<Event> events;
};

class RendezvousSequences : public testing::TestWithParam<Sequence> {};

TEST_P(RendezvousSequences, EndsAsListed) {
  RendezvousState m(rules());
  for (const Event& e : GetParam().events) {
    SCOPED_TRACE(fmt::format("at {} s, event {} of {}", e.at, static_cast<int>(e.what), e.who));
    Actions actions;
    if (e.what == Event::join) actions = m.join(10 + e.who, request(e.who), e.at);
    if (e.what == Event::left) actions = m.left(e.who, e.at);
    if (e.what == Event::ended) actions = m.ended(Rank{e.who}, "exit status 1");
    if (e.what == Event::tick) actions = m.tick(e.at);
    EXPECT_EQ(brief(actions), e.expected);
  }
}

using E = Event;
INSTANTIATE_TEST_SUITE_P(
    Table, RendezvousSequences,
    testing::Values(
        Sequence{"AllJoin", {{E::join, 2, 0, ""}, {E::join, 0, 1, ""}, {E::join, 1, 2, "welcome(3,epoch 0)"}, {E::tick, 0, 99, ""}}},
        Sequence{"AnotherEpochFollows",
                 {{E::join, 0, 0, ""},
                  {E::join, 1, 0, ""},
                  {E::join, 2, 0, "welcome(3,epoch 0)"},
                  {E::join, 1, 50, ""},
                  {E::tick, 0, 52, ""},
                  {E::join, 0, 52, ""},
                  {E::join, 2, 52, "welcome(3,epoch 1)"}}},
        Sequence{"TheMissingAreNamedThenGivenUp",
                 {{E::join, 0, 5, ""},
                  {E::tick, 0, 7.9, ""},
                  {E::tick, 0, 8, "warn(1)"},
                  {E::tick, 0, 17.9, ""},
                  {E::join, 1, 17.9, ""},
                  {E::tick, 0, 18, "warn(2)"},
                  {E::tick, 0, 35, "give_up(timeout,2)"},
                  {E::tick, 0, 36, ""}}},
        Sequence{
            "ASecondClaimIsRefusedWithoutHarm",
            {{E::join, 0, 0, ""}, {E::join, 0, 0, "refuse(connection 10)"}, {E::join, 1, 0, ""}, {E::join, 2, 0, "welcome(3,epoch 0)"}}},
        Sequence{"ARankThatDisconnectedMayReturn",
                 {{E::join, 0, 0, ""},
                  {E::join, 1, 0, ""},
                  {E::left, 11, 1, ""},
                  {E::join, 2, 1, ""},
                  {E::tick, 0, 3, "warn(2)"},
                  {E::join, 1, 4, "welcome(3,epoch 0)"}}},
        Sequence{"AnEndedProcessEndsTheWaitAtOnce", {{E::join, 0, 0, ""}, {E::join, 1, 0, ""}, {E::ended, 2, 0, "give_up(peer_lost,2)"}}},
        Sequence{"AnEndedProcessThatHadJoinedEndsItToo",
                 {{E::join, 0, 0, ""}, {E::join, 1, 0, ""}, {E::ended, 1, 0, "give_up(peer_lost,1)"}}},
        Sequence{"AnEndedProcessBeforeAnyRankWaitsIsRemembered",
                 {{E::ended, 2, 0, ""}, {E::join, 0, 1, "give_up(peer_lost,1)"}, {E::join, 1, 1, "give_up(peer_lost,1)"}}},
        Sequence{"ConnectionsThatNeverJoinedChangeNothingByLeaving", {{E::left, 99, 0, ""}, {E::join, 0, 0, ""}, {E::left, 99, 0, ""}}}),
    [](const auto& sequence) { return sequence.param.name; });

TEST(RendezvousState, RosterListsEveryMemberByRank) {
  RendezvousState m(rules());
  m.join(7, request(2), 0);
  m.join(8, request(1), 0);
  const auto actions = m.join(9, request(0), 0);
  const auto& welcome = std::get<Welcome>(actions.at(0));
  EXPECT_EQ(welcome.connection_ids, (std::vector<ConnectionId>{9, 8, 7}));
  for (int r = 0; r < kSize; ++r) EXPECT_EQ(welcome.roster.members[static_cast<std::size_t>(r)], request(r).member);
}

TEST(RendezvousState, MessagesNameTheMissingRanksAndTheCause) {
  RendezvousState m(rules());
  m.join(1, request(1), 0);
  EXPECT_EQ(std::get<Warn>(m.tick(3).at(0)).text, "waiting for ranks 0 and 2 of 3 (3 s of 30 s): ranks 0 and 2 of 3 have not joined");
  m.join(2, request(0), 0);
  m.left(1, 4);
  const Error late = std::get<GiveUp>(m.tick(30).at(0)).error;
  EXPECT_THAT(late.what,
              HasSubstr("ranks 1 and 2 of 3 have not joined (rank 1: process 1001 on here joined and disconnected) within 30 s"));
  m.join(3, request(0), 40);
  const Error dead = std::get<GiveUp>(m.ended(Rank{2}, "killed by SIGSEGV").at(0)).error;
  EXPECT_THAT(dead.what, HasSubstr("rank 2 of 3 ended before all had joined (killed by SIGSEGV)"));
  EXPECT_EQ(dead.rank, Rank{2});
}

TEST(RendezvousState, WrongSizesAndRanksAreRefused) {
  RendezvousState m(rules());
  EXPECT_THAT(std::get<Refuse>(m.join(1, request(1, 4), 0).at(0)).error.what, HasSubstr("rank 1 expects 4 ranks, job 'j' has 3"));
  EXPECT_THAT(std::get<Refuse>(m.join(1, request(3), 0).at(0)).error.what, HasSubstr("rank 3 does not exist"));
  EXPECT_FALSE(m.gathering());
}

TEST(RendezvousState, AnotherVersionIsRefusedAndStaysTheReasonWhyARankIsMissing) {
  RendezvousState m(rules());
  m.join(10, request(0), 0);
  Join other = request(1);
  for (const auto& [version, text] : {std::pair{"1.9", "Cohort 1.9"}, {"", "a Cohort that does not tell its version, an older one"}}) {
    other.version = version;
    const Actions actions = m.join(11, other, 0);
    ASSERT_EQ(brief(actions), "refuse(connection 11)");
    const std::string expected = fmt::format("rank 1 (process 1001 on here) runs {}, the coordinator of job 'j' on ", text);
    EXPECT_THAT(std::get<Refuse>(actions[0]).error.what, HasSubstr(expected));
    EXPECT_THAT(std::get<Warn>(m.tick(version[0] == 0 ? 13 : 3).at(0)).text, HasSubstr(expected));
  }
  m.join(11, request(1), 20);
  EXPECT_EQ(brief(m.join(12, request(2), 20)), "welcome(3,epoch 0)");
}

TEST(Roster, IsDecodedAsItWasEncoded) {
  const Roster roster{"job 1", Epoch{7}, {request(0).member, request(1).member}};
  EXPECT_EQ(decode_roster(encode(roster)), roster);
  const Join back = decode_join(encode(request(2)));
  EXPECT_EQ(back.member, request(2).member);
  EXPECT_EQ(back.size, 3u);
  EXPECT_EQ(back.version, "2.0");
  Join older = request(2);
  older.version.clear();
  EXPECT_EQ(decode_join(encode(older)).version, "");
}

TEST(Roster, RefusesEveryTruncationAndExtraBytes) {
  auto bytes = encode(Roster{"j", Epoch{1}, {request(0).member, request(1).member}});
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(decode_roster(ConstBytes(bytes).first(n)), Failure) << n;
  bytes.push_back(std::byte{0});
  EXPECT_THROW(decode_roster(bytes), Failure);
  bytes.assign(16, std::byte{0xff});  // a length field beyond all limits
  EXPECT_THROW(decode_roster(bytes), Failure);
}

TEST(Roster, RanksAreListedInWords) {
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
