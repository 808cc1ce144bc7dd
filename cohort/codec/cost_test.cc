#include "cohort/codec/cost.h"

#include <gmock/gmock.h>

#include <cmath>

#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

const std::vector<Layout> kBuckets{layout_of({1000, 24}), layout_of({5000})};

TEST(Cost, OfGradientsAsTheyAreIsTheBytesOfAnAllReduce) {
  const Cost cost = cost_of_none(kBuckets, 4);
  EXPECT_EQ(cost.elements, 6024);
  EXPECT_EQ(cost.bytes, 2 * 4 * 6024 * 3 / 4);
  EXPECT_EQ(cost.legs, 4);
  EXPECT_DOUBLE_EQ(cost.seconds(1e6, 1e-3), 0.036144 + 0.004);
}

TEST(Cost, HasTheLinkAtWhichBothTakeEquallyLong) {
  const Cost coded{.codec = "c", .bytes = 1e6, .compute = 0.01}, plain{.codec = "p", .bytes = 5e6, .compute = 0.002};
  const double link = crossover(coded, plain);
  EXPECT_DOUBLE_EQ(link, 5e8);
  EXPECT_DOUBLE_EQ(coded.seconds(link), plain.seconds(link));
  EXPECT_LT(coded.seconds(link / 2), plain.seconds(link / 2));
  EXPECT_GT(coded.seconds(link * 2), plain.seconds(link * 2));
  EXPECT_EQ(crossover(plain, coded), 0);  // more bytes: never
  EXPECT_TRUE(std::isinf(crossover({.bytes = 1, .compute = 0}, plain)));
  EXPECT_EQ(crossover(plain, plain), 0);
}

TEST(Cost, ChoosesByTheLink) {
  const std::vector<Cost> all{{.codec = "none", .bytes = 4e6},
                              {.codec = "bf16", .bytes = 2e6, .compute = 0.001},
                              {.codec = "topk", .bytes = 1e5, .legs = 1, .compute = 0.02}};
  EXPECT_EQ(cheapest(all, 1e11, 0).codec, "none");
  EXPECT_EQ(cheapest(all, 1e9, 0).codec, "bf16");
  EXPECT_EQ(cheapest(all, 1e7, 0).codec, "topk");
  EXPECT_EQ(cheapest(all, 1e11, 1).codec, "topk");  // fewer legs
}

TEST(Cost, IsMeasuredWithTheBytesOfThePayloads) {
  for (const char* spec : {"bf16", "int8", "topk(ratio=0.1)", "powersgd", "dgc(ratio=0.1, warmup=5)"}) {
    const auto codec = make(spec);
    const Cost cost = measure_cost(*codec, kBuckets, 3, 1);
    double bound = 0;
    for (const Layout& layout : kBuckets) bound += static_cast<double>(codec->bound(layout, layout.all()));
    const double legs = codec->mix() == Mix::gather ? (codec->variable() ? 2 : 1) : 2 * codec->rounds();
    EXPECT_NEAR(cost.bytes, codec->mix() == Mix::gather ? 2 * (bound + (codec->variable() ? 16 : 0)) : 2 * bound * 2 / 3, 1e-6) << spec;
    EXPECT_EQ(cost.legs, 2 * legs) << spec;
    EXPECT_GT(cost.compute, 0) << spec;
    EXPECT_GE(cost.compute, cost.encode) << spec;
    EXPECT_EQ(cost.elements, 6024) << spec;
  }
  EXPECT_NEAR(measure_cost(*make("topk(ratio=1)"), kBuckets, 2, 1).error, 0, 0);
  const double rounding = measure_cost(*make("bf16"), kBuckets, 2, 1).error;
  EXPECT_LT(rounding, 0x1p-8);
  EXPECT_GT(rounding, 0x1p-10);
}

TEST(Cost, LaysTensorsIntoBucketsOfASize) {
  const std::vector<TensorPlace> tensors{{"a", 0, 100, {10, 10}}, {"b", 0, 10}, {"c", 0, 5000}, {"d", 0, 3}};
  const auto buckets = bucket_layouts(tensors, 1000);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].tensors[1].first, 112u);
  EXPECT_EQ(buckets[0].tensors[0].shape, (Shape{10, 10}));
  EXPECT_EQ(buckets[1].tensors[0].name, "c");
  EXPECT_EQ(buckets[2].count, 16u);
}

}  // namespace
}  // namespace cohort::codec
