#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/sync/gossip.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

// Models that begin apart, of which nobody knows anything yet, and no gradients: by step and rank.
std::vector<std::vector<Values>> gossip(const std::string& sync, int ranks, int steps, std::size_t count) {
  std::vector<std::vector<Values>> after(static_cast<std::size_t>(steps), std::vector<Values>(static_cast<std::size_t>(ranks)));
  Quadratic q{.sync = sync, .ranks = ranks, .curvature = 0, .sizes = {static_cast<std::int64_t>(count)}};
  collective::run_ranks(ranks, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    for (std::size_t i = 0; i < count; ++i)
      doubles(rank.bucket().parameters())[i] = static_cast<double>((comm.rank().value * 31 + static_cast<int>(i) * 17) % 64) - 32;
    for (int step = 1; step <= steps; ++step) {
      rank.step(step);
      after[static_cast<std::size_t>(step - 1)][static_cast<std::size_t>(comm.rank().value)] = rank.model();
    }
  });
  return after;
}

double disagreement(const std::vector<Values>& models) {
  const Values mean = mean_of(models);
  double sum = 0;
  for (const Values& m : models)
    for (std::size_t i = 0; i < m.size(); ++i) sum += (m[i] - mean[i]) * (m[i] - mean[i]);
  return std::sqrt(sum);
}

TEST(Choco, RanksAgreeOnTheMeanAlthoughMostOfADifferenceIsNotSent) {
  for (const char* codec :
       {"topk(ratio=0.1)", "topk(ratio=0.1, feedback=false)", "int8", "randomk(ratio=0.1)", "sketch(ratio=0.1, width=2)"}) {
    const auto after = gossip(std::string("choco(gamma=0.1, codec=") + codec + ")", 5, 900, 60);
    EXPECT_LT(disagreement(after.back()), 1e-3 * disagreement(after.front())) << codec;
    expect_near(mean_of(after.back()), mean_of(after.front()), 1e-9, "the mean");
  }
}

// Without what the others know of it, a rank that sends the largest elements of its model alone brings nobody the rest: x <- x + gamma
// sum_j W_ij (C(x_j) - C(x_i)).
TEST(Choco, PlainGossipOfCompressedModelsStalls) {
  auto x = gossip("choco", 5, 1, 60).front();
  const double before = disagreement(x);
  const auto codec = codec::make("topk(ratio=0.1)");
  const Layout layout{.tensors = {{"t0", 0, 60}}, .count = 60};
  const Graph graph = make_graph("ring", 5);
  for (int step = 1; step <= 900; ++step) {
    std::vector<std::vector<float>> sent;
    for (const Values& model : x) {
      std::vector<float> values(model.begin(), model.end());
      std::vector<std::byte> payload(codec->bound(layout, layout.all()));
      payload.resize(codec->encode({.layout = layout, .range = layout.all(), .values = piece(std::span(values))}, payload));
      const ConstBytes one[] = {payload};
      codec->absorb({.layout = layout, .range = layout.all(), .keep = layout.all(), .values = piece(std::span(values))}, one);
      sent.push_back(values);
    }
    for (std::size_t r = 0; r < 5; ++r)
      for (const Neighbour& n : graph[0][r])
        for (std::size_t i = 0; i < 60; ++i)
          x[r][i] += 0.1 * n.weight * static_cast<double>(sent[static_cast<std::size_t>(n.rank)][i] - sent[r][i]);
  }
  EXPECT_GT(disagreement(x), 0.1 * before);
}

TEST(Choco, WhatIsKeptOfNeighboursIsWhatTheyKeepOfThemselves) {
  std::vector<Values> known(4), neighbours(4);
  collective::run_ranks(4, [&](collective::Communicator& comm) {
    const Quadratic q{.sync = "choco(graph=star, codec=int8)", .ranks = 4, .rate = 0.1, .curvature = 0.7, .sizes = {5, 300}};
    QuadraticRank rank(q, comm);
    for (int step = 1; step <= 20; ++step) rank.step(step);
    known[static_cast<std::size_t>(comm.rank().value)] = values_of(rank.bucket(), rank.bucket().slot("known"));
    neighbours[static_cast<std::size_t>(comm.rank().value)] = values_of(rank.bucket(), rank.bucket().slot("neighbours"));
  });
  const Graph graph = make_graph("star", 4);
  for (std::size_t r = 0; r < 4; ++r) {
    Values sum(305);
    for (const Neighbour& n : graph[0][r])
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += n.weight * known[static_cast<std::size_t>(n.rank)][i];
    expect_near(neighbours[r], sum, 1e-12);
  }
}

// h_i + fl(x_i - h_i) in the elements that the codec sends, and h_i in the others: also where places do not travel, but are drawn.
TEST(Choco, WhatIsKnownFollowsTheModelWhereItIsSent) {
  for (const char* codec : {"topk(ratio=0.1)", "randomk(ratio=0.25)", "sketch(ratio=0.05, width=2)"}) {
    constexpr std::size_t kRanks = 4, kSteps = 12;
    const Quadratic q{.sync = std::string("choco(codec=") + codec + ")", .ranks = kRanks, .curvature = 0, .sizes = {5, 300}};
    std::vector<std::vector<Values>> known(kSteps, std::vector<Values>(kRanks)), neighbours = known;
    collective::run_ranks(kRanks, [&](collective::Communicator& comm) {
      QuadraticRank rank(q, comm);
      const auto me = static_cast<std::size_t>(comm.rank().value);
      const Piece parameters = rank.bucket().parameters();
      for (std::size_t i = 0; i < parameters.count; ++i) doubles(parameters)[i] = static_cast<double>((me * 31 + i * 17) % 64) - 31.5;
      Values before(305, 0);  // nobody knows anything of the models
      for (std::size_t step = 0; step < kSteps; ++step) {
        const Values model = rank.model();
        rank.step(static_cast<std::int64_t>(step) + 1);
        const Values& h = known[step][me] = values_of(rank.bucket(), rank.bucket().slot("known"));
        neighbours[step][me] = values_of(rank.bucket(), rank.bucket().slot("neighbours"));
        int sent = 0, followed = 0;
        for (std::size_t i = 0; i < h.size(); ++i) {
          if (h[i] == before[i]) continue;
          ++sent;
          followed += h[i] == before[i] + static_cast<double>(static_cast<float>(model[i] - before[i])) ? 1 : 0;
        }
        EXPECT_GT(sent, 0) << codec << ", rank " << me << ", step " << step + 1;
        EXPECT_EQ(followed, sent) << codec << ", rank " << me << ", step " << step + 1;
        before = h;
      }
    });
    const Graph graph = make_graph("ring", kRanks);
    for (std::size_t step = 0; step < kSteps; ++step)
      for (std::size_t r = 0; r < kRanks; ++r) {
        Values sum(305);
        for (const Neighbour& n : graph[0][r])
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += n.weight * known[step][static_cast<std::size_t>(n.rank)][i];
        expect_near(neighbours[step][r], sum, 1e-12, codec);
      }
  }
}

TEST(Choco, MovesPayloadsForEachNeighbour) {
  for (const char* sync : {"choco(graph=star, codec=int8)", "choco(codec=fp16)", "choco(codec=topk(ratio=0.25))"}) {
    const Quadratic q{.sync = sync, .ranks = 4, .steps = 3, .sizes = {1024}};
    EXPECT_NEAR(train(q).moved / q.steps, sizeof(float) * make(sync)->cost(1024, 4), 1e-9) << sync << ", bytes";
  }
}

TEST(Choco, GraphsThatChangeWithTheStepAreRefused) {
  EXPECT_THAT(failure_of([] { make("choco(graph=one_peer)"); }).what, testing::HasSubstr("one_peer change with the step"));
  EXPECT_THAT(failure_of([] { make("choco(codec=zip)"); }).what, testing::HasSubstr("zip"));
}

}  // namespace
}  // namespace cohort::sync
