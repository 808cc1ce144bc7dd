#include "cohort/queue/execute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/queue/ranks.h"

namespace cohort::queue {
namespace {

using testing::Each;

// Two all-reduces as one unit on three ranks, of which the last has joined: it gives zeros.
void reduce_as_one_unit(std::size_t first_count, std::size_t second_count) {
  auto links = net::loopback_world(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const auto comm = collective::open(std::shared_ptr<net::PeerLinks>(std::move(links[static_cast<std::size_t>(r)])), test_options());
      Executor executor(*comm);
      std::vector<float> first(first_count, 1.0f), second(second_count, 2.0f), result(second_count);
      Operation one = all_reduce_of(first, "one"), two = all_reduce_of(second, "two");
      two.parts.front().out = collective::piece(std::span(result));
      for (Operation* const o : {&one, &two}) o->parts.front().shape = {static_cast<std::int64_t>(o->parts.front().in.count)};
      const Signature signatures[] = {signature_of(one), signature_of(two)};
      const bool joined = r == 2;
      const UnitMember members[] = {{joined ? nullptr : &one, &signatures[0], "one"}, {joined ? nullptr : &two, &signatures[1], "two"}};
      executor.run_unit(members);
      EXPECT_THAT(first, Each(joined ? 1.0f : 2.0f));
      EXPECT_THAT(second, Each(2.0f));
      EXPECT_THAT(result, Each(joined ? 0.0f : 4.0f));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Execute, ASmallUnitIsPacked) { reduce_as_one_unit(1000, 3); }

TEST(Execute, ALargeUnitIsReducedWhereItLies) { reduce_as_one_unit(kPackBytes / sizeof(float), 12'345); }

TEST(Execute, AUnitMayHaveAnEmptyMember) {
  reduce_as_one_unit(0, 5);
  reduce_as_one_unit(kPackBytes / sizeof(float) + 1, 0);
}

// One rank: x * pre * post, of an f32 and an f64 in one group, and of the f32 alone.
std::pair<float, double> scaled(bool factors_in_type, Op op, float x, double y, double pre, double post) {
  auto links = net::loopback_world(1);
  const auto comm = collective::open(std::shared_ptr<net::PeerLinks>(std::move(links.front())), test_options());
  Executor executor(*comm, factors_in_type);
  std::vector<float> first{x}, alone{x};
  std::vector<double> second{y};
  Operation group = all_reduce_of(first, "group", op), one = all_reduce_of(alone, "alone", op);
  group.parts.push_back({.in = collective::piece(std::span(second))});
  for (Operation* const o : {&group, &one}) o->prescale = pre, o->postscale = post;
  executor.run(group);
  executor.run(one);
  EXPECT_EQ(first.front(), alone.front());
  return {first.front(), second.front()};
}

TEST(Execute, FactorsAreRoundedToTheTypeWhereAsked) {
  const float x = 1.1f;
  const double y = 1.9, pre = 0.1, post = 0.7;
  const float in_type = x * static_cast<float>(pre) * static_cast<float>(post);
  const auto once = static_cast<float>(static_cast<float>(x * pre) * post);
  ASSERT_NE(in_type, once);
  for (const Op op : {Op::sum, Op::average}) {
    EXPECT_EQ(scaled(true, op, x, y, pre, post), std::pair(in_type, y * pre * post));
    EXPECT_EQ(scaled(false, op, x, y, pre, post), std::pair(once, y * pre * post));
  }
}

}  // namespace
}  // namespace cohort::queue
