// A reduction by way of a codec, for every codec and 1 to 4 ranks, against what the codec's functions give without a network.
#include "cohort/sync/coded_reduce.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <set>

#include "cohort/base/failure_of.h"
#include "cohort/codec/codec_row.h"
#include "cohort/collective/ranks.h"
#include "cohort/optim/measure.h"
#include "cohort/sync/ownership.h"

namespace cohort::sync {
namespace {

using collective::Collective;
using collective::Communicator;
using collective::Op;
using collective::run_ranks;
using Values = std::vector<float>;

static_assert(codec::kBlock == optim::kMeasureBlock, "cut() cuts where codecs can be cut");

const Layout kLayout{{{"a", 0, 1}, {"b", 16, 700, {20, 7, 5}}, {"c", 720, 256, {16, 16}}, {"d", 976, 3}}, 992};

// Specs that hold whole numbers up to 15, divided by 16, as they are.
const std::set<std::string> kHoldEverything{"fp16",
                                            "fp16(sum=fp32)",
                                            "bf16",
                                            "bf16(sum=fp32)",
                                            "int8",
                                            "int8(rounding=stochastic)",
                                            "topk(ratio=1)",
                                            "randomk(ratio=1)",
                                            "threshold(value=0, cap=1)",
                                            "significant(share=0, cap=1)",
                                            "dgc(ratio=1)"};

std::vector<std::string> specs() {
  std::vector<std::string> all(kHoldEverything.begin(), kHoldEverything.end());
  for (const char* more : {"topk(ratio=0.1)", "randomk(ratio=0.2)", "threshold(value=10, cap=0.5)", "powersgd(rank=3, min_rate=1)",
                           "dgc(ratio=0.1, masking=false, warmup=8)", "qsgd(elias=true)", "sketch(ratio=0.1, width=2)"})
    all.emplace_back(more);
  for (const codec::CodecRow* row : codec::codecs()) all.emplace_back(row->name);
  return all;
}

CodedReduce make(const std::string& spec, Communicator& comm, ReduceTo to = ReduceTo::all, const Layout& layout = kLayout) {
  std::vector<ElementRange> tensors;
  for (const TensorPlace& t : layout.tensors) tensors.push_back(t.range());
  return {codec::make(spec), layout, cut(tensors, layout.count, comm.size()), to, comm};
}

// Whole numbers up to `most`, divided by 16, of one rank and step; zeros between tensors.
Values gradients(int rank, std::int64_t step, int most) {
  Values values(kLayout.count);
  std::mt19937 random(static_cast<unsigned>(100 * step + rank + 1));
  for (const TensorPlace& t : kLayout.tensors)
    for (std::size_t i = t.first; i < t.first + t.count; ++i)
      values[i] = static_cast<float>(static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most) / 16;
  return values;
}

Piece all(Values& values) { return piece(std::span(values)); }

template <class Body>
void for_every_codec(const Body& body) {
  for (const std::string& spec : specs())
    for (int ranks = 1; ranks <= 4; ++ranks) {
      SCOPED_TRACE(spec + " on " + std::to_string(ranks));
      body(spec, ranks);
    }
}

// What every rank has after one reduction, to all or of its own part.
std::vector<Values> reduced(const std::string& spec, int ranks, ReduceTo to, Op op, const std::function<Values(int)>& given) {
  std::vector<Values> out(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    CodedReduce reduce = make(spec, comm, to);
    Values values = given(comm.rank().value), own(reduce.owned().count);
    reduce.reduce(comm, all(values), all(own), op, {.step = 1}, {.name = "bucket"});
    out[static_cast<std::size_t>(comm.rank().value)] = to == ReduceTo::all ? values : own;
  });
  return out;
}

bool same_in_tensors(const Values& a, const Values& b) {
  bool same = true;
  for (const TensorPlace& t : kLayout.tensors)
    same = same && std::memcmp(a.data() + t.first, b.data() + t.first, t.count * sizeof(float)) == 0;
  return same;
}

TEST(CodedReduce, IsTheSumWhereTheCodecHoldsEveryValue) {
  for_every_codec([](const std::string& spec, int ranks) {
    if (!kHoldEverything.contains(spec)) return;
    const auto out = reduced(spec, ranks, ReduceTo::all, Op::sum, [](int r) { return gradients(r, 1, 15); });
    Values sum(kLayout.count);
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients(r, 1, 15)[i];
    for (const Values& each : out)
      for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(each[i], sum[i]) << i;
  });
}

TEST(CodedReduce, GivesAllRanksTheSameBitsAndOwnersTheirPartOfThem) {
  for_every_codec([](const std::string& spec, int ranks) {
    const auto given = [](int r) { return gradients(r, 2, 100000); };
    const auto out = reduced(spec, ranks, ReduceTo::all, Op::average, given);
    for (const Values& each : out) EXPECT_TRUE(same_in_tensors(each, out[0]));
    if (codec::make(spec)->mix() == codec::Mix::hops && !codec::make(spec)->votes()) return;  // the second leg encodes again
    const auto parts = reduced(spec, ranks, ReduceTo::owners, Op::average, given);
    Values joined;
    for (const Values& part : parts) joined.insert(joined.end(), part.begin(), part.end());
    EXPECT_TRUE(same_in_tensors(joined, out[0]));
  });
}

TEST(CodedReduce, OfHopsIsTheOwnersSumEncodedOnceMore) {
  for_every_codec([](const std::string& spec, int ranks) {
    const auto codec = codec::make(spec);
    if (codec->mix() != codec::Mix::hops) return;
    const auto given = [](int r) { return gradients(r, 3, 100000); };
    std::vector<std::vector<std::byte>> payloads;
    const auto payload_of = [&](Values values, int stream) {
      std::vector<std::byte> payload(codec->bound(kLayout, kLayout.all()));
      const codec::Random random(0, 1, static_cast<std::uint32_t>(stream));
      codec->encode({.layout = kLayout, .range = kLayout.all(), .values = all(values), .random = random}, payload);
      return payload;
    };
    const auto sum_of = [&](double scale) {
      Values sum(kLayout.count);
      codec->absorb({.layout = kLayout, .range = kLayout.all(), .keep = kLayout.all(), .values = all(sum), .scale = scale},
                    std::vector<ConstBytes>(payloads.begin(), payloads.end()));
      return sum;
    };
    for (int r = 0; r < ranks; ++r) payloads.push_back(payload_of(given(r), r));
    const Values first = sum_of(1.0 / ranks);
    payloads = {payload_of(first, ranks)};  // drawn by the element, whoever owns it
    const Values second = sum_of(1);
    const auto parts = reduced(spec, ranks, ReduceTo::owners, Op::average, given);
    Values joined;
    for (const Values& part : parts) joined.insert(joined.end(), part.begin(), part.end());
    EXPECT_TRUE(same_in_tensors(joined, codec->votes() ? second : first));
    EXPECT_TRUE(same_in_tensors(reduced(spec, ranks, ReduceTo::all, Op::average, given)[0], second));
  });
}

TEST(CodedReduce, OfAVoteIsWhatMostRanksSay) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const auto given = [](int r) { return gradients(r, 5, 3); };
    const auto voted = reduced("sign_majority", ranks, ReduceTo::all, Op::sum, given)[0];
    for (const TensorPlace& t : kLayout.tensors)
      for (std::size_t i = t.first; i < t.first + t.count; ++i) {
        int for_sure = 0, zeros = 0;
        for (int r = 0; r < ranks; ++r) {
          const float g = given(r)[i];
          (g == 0 ? zeros : for_sure) += g == 0 ? 1 : g > 0 ? 1 : -1;
        }
        if (std::abs(for_sure) > zeros) {
          ASSERT_EQ(voted[i], for_sure > 0 ? 1 : -1) << i << " of " << ranks;
        } else if (t.count >= codec::kBlock) {  // a small block can be all zeros, and stays so
          ASSERT_EQ(std::abs(voted[i]), 1) << i;
        }
      }
  }
}

TEST(CodedReduce, MovesTheBytesThatItDeclares) {
  for_every_codec([](const std::string& spec, int ranks) {
    for (const ReduceTo to : {ReduceTo::all, ReduceTo::owners})
      run_ranks(ranks, [&](Communicator& comm) {
        CodedReduce reduce = make(spec, comm, to);
        const auto moved = [&] {
          std::uint64_t bytes = 0;
          for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all})
            bytes += comm.moved(c).bytes;
          return bytes;
        };
        const std::uint64_t before = moved();
        Values values = gradients(comm.rank().value, 4, 100), own(reduce.owned().count);
        reduce.reduce(comm, all(values), all(own), Op::sum, {.step = 1});
        if (codec::make(spec)->variable()) {
          EXPECT_LE(moved() - before, reduce.cost());
        } else {
          EXPECT_EQ(moved() - before, reduce.cost());
        }
      });
  });
}

struct Totals {
  std::mutex mutex;
  std::vector<double> given = std::vector<double>(kLayout.count), kept = given, sent = given;
  void add(std::vector<double>& to, std::span<const float> values, std::size_t first, double weight) {
    for (std::size_t i = 0; i < values.size(); ++i) to[first + i] += weight * static_cast<double>(values[i]);
  }
};

TEST(CodedReduce, LosesNothingWithFeedbackThroughStepsThatAreCalledOffOrDoneAgain) {
  for_every_codec([](const std::string& spec, int ranks) {
    if (!codec::make(spec)->feedback() || codec::make(spec)->momentum()) return;  // dgc: below
    Totals totals;
    run_ranks(ranks, [&](Communicator& comm) {
      CodedReduce reduce = make(spec, comm);
      double weight = 1;
      for (std::int64_t step = 1; step <= 20; ++step) {
        if (step % 6 == 0) weight /= 2;
        const bool committed = step % 5 != 3;
        Values result;
        for (int tries = step % 4 == 0 ? 2 : 1; tries > 0; --tries) {
          result = gradients(comm.rank().value, step, 500);
          reduce.reduce(comm, all(result), {}, Op::sum, {.weight = weight, .step = step});
        }
        reduce.settle(committed);
        if (!committed) continue;
        const std::lock_guard lock(totals.mutex);
        totals.add(totals.given, gradients(comm.rank().value, step, 500), 0, weight);
        if (comm.rank().value == 0) totals.add(totals.sent, result, 0, weight);
      }
      const std::lock_guard lock(totals.mutex);
      totals.add(totals.kept, reduce.sent()->residual(), 0, weight);
      if (reduce.sum() != nullptr) totals.add(totals.kept, reduce.sum()->residual(), reduce.owned().first, weight);
    });
    const double tolerance = codec::make(spec)->rounds() > 1 ? 20 * 3 * 500.0 / 16 * 0x1p-20 : 0;  // products are rounded
    for (const TensorPlace& t : kLayout.tensors)
      for (std::size_t i = t.first; i < t.first + t.count; ++i)
        ASSERT_NEAR(totals.sent[i] + totals.kept[i], totals.given[i], tolerance) << i;
  });
}

TEST(CodedReduce, OfAStepThatIsCalledOffLeavesNoTrace) {
  for_every_codec([](const std::string& spec, int ranks) {
    run_ranks(ranks, [&](Communicator& comm) {
      CodedReduce straight = make(spec, comm), disturbed = make(spec, comm);
      const auto step = [&](CodedReduce& reduce, std::int64_t number, float extra, bool committed) {
        Values values = gradients(comm.rank().value, number, 1000);
        values[20] += extra;
        reduce.reduce(comm, all(values), {}, Op::average, {.weight = 0.5, .step = number});
        reduce.settle(committed);
        return values;
      };
      for (std::int64_t number = 1; number <= 4; ++number) {
        const Values bad = step(disturbed, number, comm.rank().value == 0 ? NAN : 0, false);
        EXPECT_FALSE(std::isfinite(bad[20]));
        EXPECT_TRUE(same_in_tensors(step(straight, number, 0, true), step(disturbed, number, 0, true))) << number;
      }
    });
  });
}

TEST(CodedReduce, OfNothingIsNothing) {
  for_every_codec([](const std::string& spec, int ranks) {
    for (const ReduceTo to : {ReduceTo::all, ReduceTo::owners})
      run_ranks(ranks, [&](Communicator& comm) {
        const Layout empty{};
        CodedReduce reduce = make(spec, comm, to, empty);
        reduce.reduce(comm, {}, {}, Op::sum, {.step = 1});
        reduce.settle(true);
        EXPECT_EQ(reduce.cost(), 0u);
      });
  });
}

// Ranks whose own gradients are noise, and whose mean has rank one in b and in c.
Values of_one_direction(int rank, int ranks, std::int64_t step) {
  Values sum(kLayout.count);
  for (int r = 0; r + 1 < ranks; ++r) {
    const Values noise = gradients(r, step, 50);
    if (r == rank) return noise;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] -= noise[i];
  }
  for (const std::size_t t : {1u, 2u}) {
    const TensorPlace& tensor = kLayout.tensors[t];
    const std::size_t columns = tensor.count / static_cast<std::size_t>(tensor.shape[0]);
    for (std::size_t i = 0; i < tensor.count; ++i)
      sum[tensor.first + i] += static_cast<float>(ranks) * (static_cast<float>(i / columns) - 4) * (static_cast<float>(i % columns) - 6);
  }
  return sum;
}

TEST(CodedReduce, ByPowersgdIsExactInOneStepWhereTheMeanHasNoMoreRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (const ReduceTo to : {ReduceTo::all, ReduceTo::owners}) {
      const auto given = [&](int r) { return of_one_direction(r, ranks, 1); };
      const auto out = reduced("powersgd(rank=1, min_rate=1)", ranks, to, Op::average, given);
      Values joined;
      for (const Values& part : out) joined.insert(joined.end(), part.begin(), part.end());
      std::vector<double> mean(kLayout.count);
      for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(of_one_direction(r, ranks, 1)[i]) / ranks;
      for (const TensorPlace& t : kLayout.tensors)
        for (std::size_t i = t.first; i < t.first + t.count; ++i) ASSERT_NEAR(static_cast<double>(joined[i]), mean[i], 1e-3) << i;
    }
}

TEST(CodedReduce, RemembersTheSameOnAllRanksOfStepsThatAreMade) {
  std::vector<Values> kept(3);
  run_ranks(3, [&](Communicator& comm) {
    CodedReduce reduce = make("powersgd(rank=2, min_rate=1)", comm);
    const auto memory = [&] {
      Values all;
      for (const std::size_t t : {1u, 2u}) {
        const Piece part = reduce.memory(t);
        all.insert(all.end(), static_cast<float*>(part.data), static_cast<float*>(part.data) + part.count);
      }
      return all;
    };
    EXPECT_EQ(reduce.memory(0).count, 0u);
    EXPECT_EQ(reduce.memory_shape(1), (Shape{2, 35}));
    EXPECT_THAT(memory(), testing::Each(0.0F));
    for (const bool committed : {false, true}) {
      Values values = gradients(comm.rank().value, 1, 100);
      reduce.reduce(comm, all(values), {}, Op::average, {.step = 1});
      reduce.settle(committed);
      if (!committed) {
        EXPECT_THAT(memory(), testing::Each(0.0F));
      }
    }
    EXPECT_THAT(memory(), testing::Contains(testing::Ne(0.0F)));
    kept[static_cast<std::size_t>(comm.rank().value)] = memory();
    reduce.settle(true);  // nothing was reduced: it stays
    EXPECT_EQ(memory(), kept[static_cast<std::size_t>(comm.rank().value)]);
  });
  EXPECT_EQ(kept[0], kept[1]);
  EXPECT_EQ(kept[0], kept[2]);
}

TEST(CodedReduce, ByDgcOfRatioOneWithoutMaskingIsMomentumOfTheSum) {
  run_ranks(4, [](Communicator& comm) {
    CodedReduce reduce = make("dgc(ratio=1, momentum=0.5, masking=false)", comm);
    std::vector<double> momentum(kLayout.count);
    for (std::int64_t step = 1; step <= 6; ++step) {
      Values values = gradients(comm.rank().value, step, 15);
      reduce.reduce(comm, all(values), {}, Op::sum, {.step = step});
      reduce.settle(true);
      for (std::size_t i = 0; i < values.size(); ++i) {
        double sum = 0;
        for (int r = 0; r < 4; ++r) sum += static_cast<double>(gradients(r, step, 15)[i]);
        momentum[i] = 0.5 * momentum[i] + sum;
        ASSERT_EQ(static_cast<double>(values[i]), momentum[i]) << step;
      }
    }
  });
}

TEST(CodedReduce, ByDgcClipsEveryRanksShareOfATensor) {
  for (const Op op : {Op::sum, Op::average})
    run_ranks(4, [op](Communicator& comm) {
      CodedReduce reduce = make("dgc(ratio=1, momentum=0, clip=6)", comm);
      const double unit = 0.5;  // a loss scale of 2
      Values values = gradients(0, 1, 400);
      const Values given = values;
      reduce.reduce(comm, all(values), {}, op, {.weight = unit, .unit = unit, .step = 1});
      for (const TensorPlace& t : kLayout.tensors) {
        double norm = 0;
        for (std::size_t i = t.first; i < t.first + t.count; ++i) norm += static_cast<double>(given[i]) * static_cast<double>(given[i]);
        norm = std::sqrt(norm) * unit * (op == Op::average ? 0.25 : 1);  // what this rank adds to the result
        const double factor = (op == Op::average ? 1 : 4) * std::min(1.0, 6 / 2.0 / norm);
        for (std::size_t i = t.first; i < t.first + t.count; ++i)
          ASSERT_NEAR(static_cast<double>(values[i]), factor * static_cast<double>(given[i]), 1e-4) << t.name;
      }
    });
}

TEST(CodedReduce, RefusesWhatIsNoSum) {
  run_ranks(1, [](Communicator& comm) {
    CodedReduce reduce = make("fp16", comm);
    Values values(kLayout.count);
    EXPECT_EQ(failure_of([&] { reduce.reduce(comm, all(values), {}, Op::max, {}); }).kind, Kind::usage);
  });
}

}  // namespace
}  // namespace cohort::sync
