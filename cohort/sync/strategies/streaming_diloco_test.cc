#include "cohort/base/failure_of.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

using testing::HasSubstr;

TEST(StreamingDiLoCo, WithOneFragmentAndNoDelayItIsDiLoCoToTheBit) {
  Quadratic q{.sync = "diloco(h=3)", .ranks = 4, .steps = 12, .rate = 0.1, .curvature = 0.7};
  const QuadraticRun expected = train(q);
  q.sync = "streaming_diloco(h=3, fragments=1, delay=0)";
  const QuadraticRun found = train(q);
  EXPECT_EQ(found.models, expected.models);
  EXPECT_EQ(found.consensus, expected.consensus);
}

// Tensors of one element each, so that fragments are halves of them: the formula, step by step, of integers' size.
TEST(StreamingDiLoCo, FragmentsMeetInTurnWithTheModelsOfSomeStepsBefore) {
  constexpr int kSteps = 24;
  constexpr std::int64_t kStride = 3, kFragments = 2;
  for (const std::int64_t delay : {0, 1, 2})
    for (const double alpha : {0.0, 0.25}) {
      Quadratic q{.ranks = 2, .steps = kSteps, .rate = 0.25, .curvature = 0.5, .sizes = {1, 1, 1, 1}};
      q.sync = "streaming_diloco(h=6, fragments=2, delay=" + std::to_string(delay) + ", alpha=" + std::to_string(alpha) +
               ", lr=0.5, momentum=0.5, nesterov=false)";
      q.target = [](int rank, std::size_t element) { return 8.0 * rank + 4.0 * static_cast<double>(element); };
      const QuadraticRun run = train(q);
      std::vector<Values> x(2, Values(4)), before;  // by rank
      Values anchor(4), momentum(4), moved(4);
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        for (std::size_t r = 0; r < 2; ++r)
          for (std::size_t i = 0; i < 4; ++i) x[r][i] -= 0.125 * (x[r][i] - q.target(static_cast<int>(r), i));
        const std::int64_t fragment = ((step + kStride - 1) / kStride - 1) % kFragments;
        const auto in = [&](std::size_t i) { return static_cast<std::int64_t>(i / 2) == fragment; };
        const auto take = [&](std::int64_t of) {
          for (std::size_t i = 0; i < 4; ++i)
            if (static_cast<std::int64_t>(i / 2) == of) moved[i] = anchor[i] - (x[0][i] + x[1][i]) / 2;
        };
        if (step % kStride == 0) {
          if (delay == 0) take(fragment);
          for (std::size_t i = 0; i < 4; ++i) {
            if (!in(i)) continue;
            momentum[i] = 0.5 * momentum[i] + moved[i];
            anchor[i] -= 0.5 * momentum[i];
            for (auto& own : x) own[i] += (1 - alpha) * (anchor[i] - own[i]);
          }
        }
        if (delay > 0 && (step + delay) % kStride == 0) take(((step + delay) / kStride - 1) % kFragments);
        for (std::size_t r = 0; r < 2; ++r)
          expect_near(run.after[r][static_cast<std::size_t>(step - 1)], x[r], 1e-12,
                      q.sync + ", step " + std::to_string(step) + ", rank " + std::to_string(r));
      }
      expect_near(run.consensus[1], anchor, 1e-12);
    }
}

// The bytes of a fragment are spread over the steps of the delay, and in the others nothing moves.
TEST(StreamingDiLoCo, ADelaySpreadsAFragmentOverItsSteps) {
  const Quadratic q{.sync = "streaming_diloco(h=8, fragments=2, delay=2)", .ranks = 2, .sizes = {64, 64}};
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    std::vector<double> moved;
    for (int step = 1; step <= 8; ++step) {
      const double before = moved_by(comm);
      rank.step(step);
      moved.push_back(moved_by(comm) - before);
    }
    EXPECT_THAT(moved, testing::ElementsAre(0, 0, 32, 32, 0, 0, 32, 32));
  });
}

TEST(StreamingDiLoCo, FragmentsAreOfTheModelAndNotOfItsBuckets) {
  const auto fragments_of = [](const std::vector<std::vector<std::size_t>>& buckets) {
    std::vector<std::vector<bool>> met(3, std::vector<bool>(6));  // by round, by tensor
    collective::run_ranks(1, [&](collective::Communicator& comm) {
      const auto strategy = make("streaming_diloco(h=3, fragments=3, delay=0, lr=1, momentum=0)");
      std::vector<std::unique_ptr<Bucket>> all;
      std::vector<Bucket*> site_buckets;
      for (const auto& orders : buckets) {
        std::vector<Member> members;
        for (const std::size_t order : orders) members.push_back({.name = "t" + std::to_string(order), .shape = {10}, .order = order});
        all.push_back(std::make_unique<Bucket>(static_cast<int>(all.size()), members, Dtype::f64, comm));
        all.back()->allocate_parameters(comm);
        for (const SlotSpec& slot : strategy->slots()) all.back()->open_slot(slot.name, slot.in_communicator ? &comm : nullptr);
        site_buckets.push_back(all.back().get());
      }
      Site site{comm, site_buckets};
      strategy->open(site);
      for (std::int64_t step = 1; step <= 3; ++step)
        for (Bucket* bucket : site_buckets) {
          fill(bucket->parameters(), static_cast<double>(step));
          const Wire wire{.comm = &comm, .number = step};
          strategy->exchange_models(*bucket, wire);
          strategy->mix_models(*bucket, {.number = step});
          for (const Member& m : bucket->members())
            if (doubles(bucket->slot("anchor"))[m.first] == static_cast<double>(step))
              met[static_cast<std::size_t>(step - 1)][m.order] = true;
        }
    });
    return met;
  };
  const auto expected = fragments_of({{5, 4, 3, 2, 1, 0}});
  EXPECT_THAT(expected[0], testing::ElementsAre(true, true, false, false, false, false));
  EXPECT_THAT(expected[1], testing::ElementsAre(false, false, true, true, false, false));
  EXPECT_EQ(fragments_of({{5, 3}, {4, 2, 1}, {0}}), expected);
}

TEST(StreamingDiLoCo, RoundsThatDoNotFitAreRefused) {
  EXPECT_THAT(failure_of([] { make("streaming_diloco(h=10, fragments=4)"); }).what, HasSubstr("do not divide h=10"));
  EXPECT_THAT(failure_of([] { make("streaming_diloco(h=8, fragments=4, delay=2)"); }).what, HasSubstr("not below the 2 steps"));
}

}  // namespace
}  // namespace cohort::sync
