// Both modes do what the plain collectives do.
#include "cohort/queue/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <numeric>
#include <random>

#include "cohort/queue/ranks.h"

namespace cohort::queue {
namespace {

using testing::Each;
using testing::ElementsAre;

struct Way {
  Mode mode;
  bool works;  // the waiting thread works itself, or leaves it to the progress thread
};

class BothModes : public testing::TestWithParam<Way> {
 protected:
  QueueOptions options() const { return {.mode = GetParam().mode}; }
  static Deadline done() { return either(GetParam().works); }
};

INSTANTIATE_TEST_SUITE_P(Queue, BothModes,
                         testing::Values(Way{Mode::in_order, false}, Way{Mode::in_order, true}, Way{Mode::negotiated, false},
                                         Way{Mode::negotiated, true}),
                         [](const auto& test) {
                           const std::string mode = test.param.mode == Mode::in_order ? "in_order" : "negotiated";
                           return mode + (test.param.works ? "_by_the_waiter" : "_by_the_lane");
                         });

TEST_P(BothModes, SumOverAnyRankCount) {
  for (int n = 1; n <= 9; ++n) {
    run_queues(n, options(), [n](Queue& queue) {
      std::vector<float> data(1000, static_cast<float>(queue.rank().value + 1));
      const Handle handle = queue.submit(all_reduce_of(data, "x"));
      queue.wait(handle, done());
      EXPECT_TRUE(queue.poll(handle));
      EXPECT_THAT(data, Each(static_cast<float>(n * (n + 1) / 2)));
    });
  }
}

TEST_P(BothModes, OutOfPlaceLeavesTheInputAlone) {
  run_queues(3, options(), [](Queue& queue) {
    std::vector<double> in(100, 2.0), out(100, -1.0);
    Operation o = all_reduce_of(in, "x", Op::product);
    o.parts[0].out = collective::piece(std::span<double>(out));
    queue.wait(queue.submit(std::move(o)), done());
    EXPECT_THAT(in, Each(2.0));
    EXPECT_THAT(out, Each(8.0));
  });
}

TEST_P(BothModes, ScalesAreApplied) {
  run_queues(2, options(), [](Queue& queue) {
    std::vector<float> data(8, 3.0f);
    Operation o = all_reduce_of(data, "x");
    o.prescale = 0.5;
    o.postscale = 10;
    queue.wait(queue.submit(std::move(o)), done());
    EXPECT_THAT(data, Each(30.0f));
  });
}

TEST_P(BothModes, AdasumAveragesWhatIsParallelPartByPart) {
  run_queues(3, options(), [](Queue& queue) {
    std::vector<float> same(8, 3.0f), own(3, 0.0f);
    own[static_cast<std::size_t>(queue.rank().value)] = 5.0f;
    Operation o = all_reduce_of(same, "x");
    o.parts.push_back({.in = collective::piece(std::span<float>(own))});
    o.adasum = true;
    queue.wait(queue.submit(std::move(o)), done());
    EXPECT_THAT(same, Each(testing::FloatEq(3.0f)));
    EXPECT_THAT(own, Each(testing::FloatEq(5.0f)));
  });
}

TEST_P(BothModes, ACodecTakesThePlaceOfTheCollectiveInTheAgreedOrder) {
  run_queues(3, options(), [](Queue& queue) {
    std::vector<float> data(8, 3.0f), plain(8, 1.0f);
    Operation o = all_reduce_of(data, "x");
    o.codec = "half";
    o.reduce = [&](collective::Communicator& comm, const collective::Call& call) {
      for (float& value : data) value /= 2;
      comm.all_reduce(collective::piece(std::span(data)), Op::sum, call);
    };
    const Handle coded = queue.submit(std::move(o)), other = queue.submit(all_reduce_of(plain, "y"));
    queue.wait(coded, done());
    queue.wait(other, done());
    EXPECT_THAT(data, Each(4.5f));
    EXPECT_THAT(plain, Each(3.0f));
  });
}

TEST_P(BothModes, AGroupIsOneUnitOfAnyTypesAndSizes) {
  for (const std::size_t large : {std::size_t{10}, std::size_t{400'000}}) {
    run_queues(3, options(), [large](Queue& queue) {
      std::vector<float> a(large, 1.0f), b(7, 2.0f);
      std::vector<std::int64_t> c(5, queue.rank().value);
      Operation same{.collective = Collective::all_reduce, .name = "same type"},
          mixed{.collective = Collective::all_reduce, .name = "mixed"};
      same.parts = {{.in = collective::piece(std::span(a))}, {.in = collective::piece(std::span(b))}};
      mixed.parts = {{.in = collective::piece(std::span(a))}, {.in = collective::piece(std::span(c))}};
      const Handle first = queue.submit(std::move(same));
      queue.wait(first, done());
      EXPECT_THAT(a, Each(3.0f));
      EXPECT_THAT(b, Each(6.0f));
      queue.wait(queue.submit(std::move(mixed)), done());
      EXPECT_THAT(a, Each(9.0f));
      EXPECT_THAT(c, Each(3));
    });
  }
}

TEST_P(BothModes, UnevenGathersAskForTheMemoryTheyNeed) {
  run_queues(4, options(), [](Queue& queue) {
    const auto me = static_cast<std::size_t>(queue.rank().value);
    std::vector<std::int32_t> a(me, static_cast<int>(me)), b(3, 7);
    std::vector<std::vector<std::int32_t>> out(2);
    Operation o{.collective = Collective::all_gather, .name = "gather"};
    o.parts = {{.in = collective::piece(std::span(a))}, {.in = collective::piece(std::span(b))}};
    o.allocate = [&](std::size_t part, std::size_t count) {
      out[part].resize(count);
      return static_cast<void*>(out[part].data());
    };
    const Result result = queue.wait(queue.submit(std::move(o)), done());
    EXPECT_THAT(out[0], ElementsAre(1, 2, 2, 3, 3, 3));
    EXPECT_EQ(out[1], std::vector<std::int32_t>(12, 7));
    ASSERT_EQ(result.counts.size(), 2u);
    EXPECT_THAT(result.counts[0], ElementsAre(0u, 1u, 2u, 3u));
    EXPECT_THAT(result.counts[1], Each(3u));
  });
}

TEST_P(BothModes, KnownGathersNeedNoAllocator) {
  run_queues(3, options(), [](Queue& queue) {
    const auto me = static_cast<std::size_t>(queue.rank().value);
    std::vector<std::size_t> counts{1, 2, 3};
    std::vector<std::int32_t> in(counts[me], static_cast<int>(me)), out(6), even(3);
    Operation o{.collective = Collective::all_gather, .name = "uneven"}, e{.collective = Collective::all_gather, .name = "even"};
    o.parts = {{.in = collective::piece(std::span(in)), .out = collective::piece(std::span(out)), .counts = counts}};
    e.parts = {{.in = collective::piece(std::span(in)).part(0, 1), .out = collective::piece(std::span(even))}};
    queue.wait(queue.submit(std::move(o)), done());
    queue.wait(queue.submit(std::move(e)), done());
    EXPECT_THAT(out, ElementsAre(0, 1, 1, 2, 2, 2));
    EXPECT_THAT(even, ElementsAre(0, 1, 2));
  });
}

TEST_P(BothModes, UnevenExchangesReturnTheCountsFromEachRank) {
  run_queues(3, options(), [](Queue& queue) {
    const int me = queue.rank().value;
    std::vector<std::int32_t> in, out;
    Operation o{.collective = Collective::all_to_all, .name = "exchange"};
    Part part;
    for (int to = 0; to < 3; ++to) {  // me + to elements that identify the sender
      part.counts.push_back(static_cast<std::size_t>(me + to));
      in.insert(in.end(), part.counts.back(), 10 * me + to);
    }
    part.in = collective::piece(std::span(in));
    o.parts.push_back(part);
    o.allocate = [&](std::size_t, std::size_t count) {
      out.resize(count);
      return static_cast<void*>(out.data());
    };
    const Result result = queue.wait(queue.submit(std::move(o)), done());
    std::vector<std::int32_t> expected;
    for (int from = 0; from < 3; ++from) {
      EXPECT_EQ(result.counts[0][static_cast<std::size_t>(from)], static_cast<std::size_t>(from + me));
      expected.insert(expected.end(), static_cast<std::size_t>(from + me), 10 * from + me);
    }
    EXPECT_EQ(out, expected);
  });
}

TEST_P(BothModes, EveryOtherCollectiveEqualsThePlainOne) {
  run_queues(3, options(), [](Queue& queue) {
    const int me = queue.rank().value;
    const Rank root{1};
    std::vector<std::int32_t> word{me == 1 ? 42 : 0}, six{1, 2, 3, 4, 5, 6}, two(2), three(3), total(6);
    const auto run = [&](Collective collective, Part part, Op op = Op::sum) {
      Operation o{.collective = collective, .parts = {std::move(part)}, .op = op, .root = root};
      queue.wait(queue.submit(std::move(o)), done());
    };
    run(Collective::broadcast, {.in = collective::piece(std::span(word))});
    EXPECT_EQ(word[0], 42);
    run(Collective::reduce_scatter, {.in = collective::piece(std::span(six)), .out = collective::piece(std::span(two))});
    EXPECT_THAT(two, ElementsAre(3 * (2 * me + 1), 3 * (2 * me + 2)));
    run(Collective::reduce, {.in = collective::piece(std::span(six)), .out = collective::piece(std::span(total))}, Op::max);
    EXPECT_EQ(total, me == 1 ? six : std::vector<std::int32_t>(6)) << "only the root's out is written";
    word[0] = me;
    run(Collective::gather, {.in = collective::piece(std::span(word)), .out = collective::piece(std::span(three))});
    EXPECT_EQ(three, me == 1 ? (std::vector<std::int32_t>{0, 1, 2}) : std::vector<std::int32_t>(3));
    run(Collective::scatter, {.in = collective::piece(std::span(six)), .out = collective::piece(std::span(two))});
    EXPECT_THAT(two, ElementsAre(2 * me + 1, 2 * me + 2));
    queue.wait(queue.submit({.collective = Collective::barrier}), done());
  });
}

TEST_P(BothModes, OneRankAloneIsTheIdentity) {
  run_queues(1, options(), [](Queue& queue) {
    std::vector<float> data{1, 2, 3};
    queue.wait(queue.submit(all_reduce_of(data, "x", Op::average)), done());
    EXPECT_THAT(data, ElementsAre(1, 2, 3));
  });
}

TEST_P(BothModes, ManyInFlightFinishWithoutBeingWaitedForInOrder) {
  run_queues(4, options(), [](Queue& queue) {
    std::vector<std::vector<float>> data(200);
    std::vector<Handle> handles;
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].assign(i * 13 % 97, 1.0f);
      handles.push_back(queue.submit(all_reduce_of(data[i], fmt::format("t{}", i))));
    }
    for (std::size_t i = data.size(); i-- > 0;) {
      queue.wait(handles[i], done());
      EXPECT_THAT(data[i], Each(4.0f));
    }
  });
}

TEST_P(BothModes, ADroppedHandleIsHarmlessAndTheOwnerOfTheMemoryIsReleased) {
  std::vector<std::weak_ptr<void>> owners(2);
  run_queues(2, options(), [&](Queue& queue) {
    auto data = std::make_shared<std::vector<float>>(64, 1.0f);
    Operation o = all_reduce_of(*data, "dropped");
    owners[static_cast<std::size_t>(queue.rank().value)] = data;
    o.keep = std::move(data);
    queue.submit(std::move(o));
    queue.wait(queue.submit({.collective = Collective::barrier}), done());
  });
  for (const auto& owner : owners) EXPECT_TRUE(owner.expired());
}

// ---- negotiated only

struct SubmitCase {
  std::string name;
  std::vector<float> data;
};

// Every rank submits the same names, `rounds` times, each in an order of its own. The bits must be those of rank-ordered plain collectives.
void shuffle_and_compare(unsigned seed, int ranks, std::size_t fusion_bytes, std::size_t cache_names,
                         std::vector<std::vector<float>>* bits) {
  SCOPED_TRACE(fmt::format("seed {} ranks {} fusion {} cache {}", seed, ranks, fusion_bytes, cache_names));
  constexpr std::size_t kNames = 17;
  constexpr int kRounds = 3;
  const QueueOptions options{.mode = Mode::negotiated, .fusion_bytes = fusion_bytes, .cache_names = cache_names};
  bits->assign(static_cast<std::size_t>(ranks), {});
  run_queues(ranks, options, [&](Queue& queue) {
    std::mt19937 mine(seed * 1000 + static_cast<unsigned>(queue.rank().value));
    for (int round = 0; round < kRounds; ++round) {
      std::vector<SubmitCase> all(kNames);
      std::vector<Handle> handles(kNames);
      std::vector<std::size_t> order(kNames);
      std::iota(order.begin(), order.end(), 0u);
      for (std::size_t i = 0; i < kNames; ++i) {
        std::mt19937 values(seed + static_cast<unsigned>(i * 100 + static_cast<std::size_t>(queue.rank().value)));
        all[i].name = fmt::format("n{}", i);
        all[i].data.resize(i * i * 5);
        for (float& value : all[i].data) value = static_cast<float>(values()) / 1e9f - 2.0f;
      }
      std::shuffle(order.begin(), order.end(), mine);
      for (const std::size_t i : order)
        handles[i] = queue.submit(all_reduce_of(all[i].data, all[i].name, i % 4 == 0 ? Op::average : Op::sum));
      for (std::size_t i = 0; i < kNames; ++i) {
        queue.wait(handles[i], either((seed + i) % 2 == 0));
        auto& mine_all = (*bits)[static_cast<std::size_t>(queue.rank().value)];
        mine_all.insert(mine_all.end(), all[i].data.begin(), all[i].data.end());
      }
    }
  });
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(NegotiatedQueue, AnyOrdersGiveTheBitsOfThePlainCollectiveFusedOrNotCachedOrNot) {
  for (unsigned seed = 1; seed <= 9; ++seed) {
    const int ranks = static_cast<int>(seed);
    std::vector<std::vector<float>> fused, plain, tiny;
    shuffle_and_compare(seed, ranks, 8_MiB, 1024, &fused);
    shuffle_and_compare(seed, ranks, 0, 0, &plain);
    shuffle_and_compare(seed, ranks, 2000, 5, &tiny);
    for (std::size_t r = 0; r < fused.size(); ++r) {
      EXPECT_TRUE(same_bits(fused[r], fused[0])) << "rank " << r << " differs from rank 0";
      EXPECT_TRUE(same_bits(fused[r], plain[r])) << "fusion changed the bits, seed " << seed;
      EXPECT_TRUE(same_bits(fused[r], tiny[r])) << "a small buffer changed the bits, seed " << seed;
    }
  }
}

TEST(NegotiatedQueue, HelpReturnsInTimeAndTheOperationGoesOn) {
  run_queues(2, {.mode = Mode::negotiated}, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    Handle handle;
    if (queue.rank() == Rank{0}) {
      handle = queue.submit(all_reduce_of(data, "late"));
      EXPECT_FALSE(queue.help(handle, Deadline::in(20ms)));
    }
    queue.wait(queue.submit({.collective = Collective::barrier, .name = "rank 0 has returned"}), soon());
    if (!handle) handle = queue.submit(all_reduce_of(data, "late"));
    while (!queue.help(handle, Deadline::in(20ms))) {
    }
    queue.wait(handle, soon());
    EXPECT_THAT(data, Each(2.0f));
  });
}

TEST(NegotiatedQueue, EventsComeForEachMomentOfAnOperationInOrder) {
  std::mutex mutex;
  std::vector<Event::What> seen;
  QueueOptions options{.mode = Mode::negotiated};
  options.on_event = [&](const Event& event) {
    std::lock_guard lock(mutex);
    if (event.name == "x") seen.push_back(event.what);
  };
  run_queues(1, options, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    queue.wait(queue.submit(all_reduce_of(data, "x")), soon());
  });
  EXPECT_THAT(seen, ElementsAre(Event::What::submitted, Event::What::started, Event::What::completed));
}

TEST(NegotiatedQueue, ABarrierCompletesWhileAnUnmatchedOperationIsPending) {
  run_queues(3, {.mode = Mode::negotiated}, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    Handle unmatched;
    if (queue.rank() == Rank{0}) unmatched = queue.submit(all_reduce_of(data, "later"));
    queue.wait(queue.submit({.collective = Collective::barrier}), soon());
    EXPECT_FALSE(unmatched && queue.poll(unmatched));
    queue.wait(queue.submit({.collective = Collective::barrier}), soon());
    if (!unmatched) unmatched = queue.submit(all_reduce_of(data, "later"));
    queue.wait(unmatched, soon());
    EXPECT_THAT(data, Each(3.0f));
  });
}

TEST(NegotiatedQueue, AChangedShapeUnderAnOldNameIsFineWhenAllChange) {
  run_queues(2, {.mode = Mode::negotiated}, [](Queue& queue) {
    for (std::size_t n = 1; n < 20; ++n) {
      std::vector<float> data(n, 1.0f);
      queue.wait(queue.submit(all_reduce_of(data, "x")), soon());
      EXPECT_THAT(data, Each(2.0f));
    }
  });
}

}  // namespace
}  // namespace cohort::queue
