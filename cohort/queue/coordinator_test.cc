// The whole conversation between rank 0 and the others, without threads: messages are delivered in a random order, each rank's in its own.
#include "cohort/queue/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace cohort::queue {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr Clock::time_point kStart{};

Signature reduce_of(std::int64_t count) { return {.collective = Collective::all_reduce, .parts = {{Dtype::f32, Device::cpu, {count}}}}; }
Entry fresh(const std::string& name) { return {.type = Entry::Type::fresh, .name = name, .signature = reduce_of(4)}; }
Entry known(NameId id) { return {.type = Entry::Type::known, .id = id}; }

TEST(Coordinator, RespondsOnlyWhenThereIsSomethingToDo) {
  Coordinator coordinator(2, {}, 16);
  EXPECT_EQ(coordinator.receive(Rank{0}, {0, {fresh("a")}}, kStart), std::nullopt);
  const auto response = coordinator.receive(Rank{1}, {0, {fresh("a")}}, kStart);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->number, 1u);
  ASSERT_THAT(response->decisions, SizeIs(1));
  ASSERT_THAT(response->decisions[0].name_refs, SizeIs(1));
  EXPECT_EQ(response->decisions[0].name_refs[0].id, 1u);
  EXPECT_EQ(response->decisions[0].name_refs[0].name, "a");
}

TEST(Coordinator, ANameThatRanIsSentAsItsIdBothWays) {
  Coordinator coordinator(2, {}, 16);
  for (int r = 0; r < 2; ++r) coordinator.receive(Rank{r}, {0, {fresh("a")}}, kStart);
  coordinator.receive(Rank{0}, {1, {known(1)}}, kStart);
  const auto response = coordinator.receive(Rank{1}, {1, {known(1)}}, kStart);
  ASSERT_TRUE(response);
  const NameRef& name_ref = response->decisions[0].name_refs[0];
  EXPECT_EQ(name_ref.id, 1u);
  EXPECT_EQ(name_ref.name, "");
  EXPECT_LE(encode(*response).size(), 64u);
  EXPECT_LE(encode(Request{1, {known(1)}}).size(), 24u);
}

TEST(Coordinator, AnIdThatWasNotAssignedIsCorrupt) {
  Coordinator coordinator(2, {}, 16);
  EXPECT_THROW(coordinator.receive(Rank{1}, {0, {known(7)}}, kStart), Failure);
}

TEST(NameRegistry, EvictsTheLeastRecentlyRunAndResolvesItUntilAllRanksAcknowledged) {
  NameRegistry registry(2, 2);
  std::vector<NameId> forgotten;
  const NameId a = registry.name_ref({"a", reduce_of(4)}, 1, forgotten).id;
  const NameId b = registry.name_ref({"b", reduce_of(4)}, 2, forgotten).id;
  registry.name_ref({"a", reduce_of(4)}, 3, forgotten);
  EXPECT_THAT(forgotten, IsEmpty());
  registry.name_ref({"c", reduce_of(4)}, 4, forgotten);
  EXPECT_THAT(forgotten, testing::ElementsAre(b));
  registry.acknowledged(Rank{0}, 4);
  EXPECT_EQ(registry.lookup(b, Rank{1}).name, "b") << "rank 1 may have sent it before it got the response";
  registry.acknowledged(Rank{1}, 4);
  EXPECT_THROW(registry.lookup(b, Rank{1}), Failure);
  EXPECT_EQ(registry.lookup(a, Rank{1}).name, "a");
}

TEST(NameRegistry, AChangedSignatureGetsANewId) {
  NameRegistry registry(1, 8);
  std::vector<NameId> forgotten;
  const NameId old = registry.name_ref({"a", reduce_of(4)}, 1, forgotten).id;
  const NameRef name_ref = registry.name_ref({"a", reduce_of(5)}, 2, forgotten);
  EXPECT_NE(name_ref.id, old);
  EXPECT_EQ(name_ref.name, "a");
  EXPECT_THAT(forgotten, testing::ElementsAre(old));
}

TEST(NameRegistry, NoCapacityMeansNamesInFull) {
  NameRegistry registry(1, 0);
  std::vector<NameId> forgotten;
  for (std::uint64_t i = 1; i < 4; ++i) EXPECT_EQ(registry.name_ref({"a", reduce_of(4)}, i, forgotten).id, kNoId);
}

// A rank as the progress engine is one, without its thread: drafts requests from what it knows, learns from responses.
struct Follower {
  NameCache names;
  std::uint64_t acknowledged = 0;
  std::vector<std::string> ran;
  std::set<std::string> in_flight;

  Entry submit(const std::string& name, const Signature& signature) {
    in_flight.insert(name);
    const NameId id = names.find(name, signature);
    if (id != kNoId) return known(id);
    return {.type = Entry::Type::fresh, .name = name, .signature = signature};
  }

  void apply(const Response& response) {
    for (const DecisionMessage& decision_message : response.decisions) {
      for (const NameRef& name_ref : decision_message.name_refs) {
        auto named = name_ref.name.empty() ? names.at(name_ref.id)
                                           : std::make_shared<const NamedSignature>(NamedSignature{name_ref.name, name_ref.signature});
        ASSERT_TRUE(named) << "id " << name_ref.id << " unknown";
        if (name_ref.id != kNoId && !name_ref.name.empty()) names.learn(name_ref.id, named);
        ASSERT_EQ(in_flight.erase(named->name), 1u);
        ran.push_back(named->name);
      }
    }
    for (const NameId id : response.forgotten) names.forget(id);
    acknowledged = response.number;
  }
};

// Each rank submits every name of every round, in its own order; a tiny cache makes names come and go all the time.
void converse(unsigned seed, int ranks, std::size_t capacity) {
  SCOPED_TRACE(fmt::format("seed {} ranks {} capacity {}", seed, ranks, capacity));
  constexpr int kNames = 12, kRounds = 30;
  std::mt19937 random(seed);
  Coordinator coordinator(ranks, {.fusion_bytes = random() % 2 * 64}, capacity);
  std::vector<Follower> followers(static_cast<std::size_t>(ranks));
  std::vector<std::vector<std::string>> to_submit(followers.size());
  std::vector<std::deque<std::vector<std::byte>>> requests(followers.size()), responses(followers.size());
  for (auto& list : to_submit) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::string> order;
      for (int i = 0; i < kNames; ++i) order.push_back(fmt::format("n{}", i));
      std::shuffle(order.begin(), order.end(), random);
      list.insert(list.end(), order.begin(), order.end());
    }
    std::reverse(list.begin(), list.end());
  }
  const std::size_t total = static_cast<std::size_t>(kNames * kRounds);
  for (int steps = 0; steps < 200'000; ++steps) {
    const std::size_t r = random() % followers.size();
    Follower& follower = followers[r];
    const auto action = random() % 3;
    if (action == 0 && !to_submit[r].empty() && !follower.in_flight.contains(to_submit[r].back())) {
      Request request{follower.acknowledged, {}};
      for (auto burst = random() % 4 + 1; burst > 0 && !to_submit[r].empty() && !follower.in_flight.contains(to_submit[r].back());
           --burst) {
        request.entries.push_back(follower.submit(to_submit[r].back(), reduce_of(static_cast<std::int64_t>(to_submit[r].back().size()))));
        to_submit[r].pop_back();
      }
      requests[r].push_back(encode(request));
    } else if (action == 1 && !requests[r].empty()) {
      const auto response = coordinator.receive(Rank{static_cast<int>(r)}, decode_request(requests[r].front()), kStart);
      requests[r].pop_front();
      if (response)
        for (auto& inbox : responses) inbox.push_back(encode(*response));
    } else if (action == 2 && !responses[r].empty()) {
      follower.apply(decode_response(responses[r].front()));
      responses[r].pop_front();
    }
    ASSERT_LE(follower.names.size(), capacity);
    if (std::all_of(followers.begin(), followers.end(), [&](const Follower& f) { return f.ran.size() == total; })) break;
  }
  for (const Follower& follower : followers) {
    ASSERT_EQ(follower.ran.size(), total);
    EXPECT_EQ(follower.ran, followers[0].ran) << "ranks ran in different orders";
  }
}

TEST(Coordinator, EveryRankRunsEverythingInOneOrderWhateverTheDeliveries) {
  for (unsigned seed = 1; seed <= 12; ++seed) converse(seed, static_cast<int>(seed % 5) + 1, seed % 3 * 5);
}

}  // namespace
}  // namespace cohort::queue
