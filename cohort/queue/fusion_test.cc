#include "cohort/queue/fusion.h"

#include <gtest/gtest.h>

namespace cohort::queue {
namespace {

using Units = std::vector<std::vector<std::size_t>>;

Signature reduce_of(std::int64_t count, Dtype dtype = Dtype::f32) {
  return {.collective = Collective::all_reduce, .parts = {{dtype, Device::cpu, {count}}}};
}

Units plan(const std::vector<Signature>& ready, std::size_t most) {
  std::vector<const Signature*> pointers;
  for (const Signature& s : ready) pointers.push_back(&s);
  return fusion_plan(pointers, most);
}

TEST(Fusion, OneKindFillsABufferAndStartsTheNext) {
  EXPECT_EQ(plan({reduce_of(10), reduce_of(10), reduce_of(10)}, 80), (Units{{0, 1}, {2}}));
}

TEST(Fusion, LooksPastOperationsOfAnotherKind) {
  EXPECT_EQ(plan({reduce_of(4), reduce_of(4, Dtype::f64), reduce_of(4), reduce_of(4, Dtype::f64)}, 1000), (Units{{0, 2}, {1, 3}}));
}

TEST(Fusion, LooksPastOperationsThatDoNotFit) { EXPECT_EQ(plan({reduce_of(10), reduce_of(100), reduce_of(10)}, 80), (Units{{0, 2}, {1}})); }

TEST(Fusion, ZeroTurnsItOff) { EXPECT_EQ(plan({reduce_of(4), reduce_of(4)}, 0), (Units{{0}, {1}})); }

TEST(Fusion, OpsAndScalesKeepOperationsApart) {
  Signature max = reduce_of(4), pre = reduce_of(4), post = reduce_of(4);
  max.op = Op::max;
  pre.prescale = 0.5;
  post.postscale = 0.5;
  EXPECT_EQ(plan({reduce_of(4), max, pre, post}, 1000), (Units{{0}, {1}, {2}, {3}}));
}

TEST(Fusion, GroupsOfOneTypeJoinAndMixedOrForeignOnesStayAlone) {
  Signature group = reduce_of(4), mixed = reduce_of(4), gpu = reduce_of(4), gather = reduce_of(4);
  group.parts.push_back(group.parts[0]);
  mixed.parts.push_back({Dtype::f64, Device::cpu, {4}});
  gpu.parts[0].device = Device::cuda;
  gather.collective = Collective::all_gather;
  EXPECT_EQ(plan({reduce_of(4), mixed, gpu, gather, group}, 1000), (Units{{0, 4}, {1}, {2}, {3}}));
}

TEST(Fusion, EveryOperationIsInExactlyOneUnitAndUnitsKeepTheOrder) {
  std::vector<Signature> ready;
  for (int i = 0; i < 200; ++i) ready.push_back(reduce_of(i * 7 % 31, i % 3 == 0 ? Dtype::f64 : Dtype::f32));
  std::vector<int> seen(ready.size(), 0);
  std::size_t last_first = 0;
  for (const auto& unit : plan(ready, 256)) {
    EXPECT_GE(unit.front(), last_first);
    last_first = unit.front();
    std::size_t bytes = 0;
    for (const std::size_t i : unit) ++seen[i], bytes += bytes_of(ready[i]);
    EXPECT_LE(bytes, 256u);
  }
  EXPECT_EQ(seen, std::vector<int>(ready.size(), 1));
}

}  // namespace
}  // namespace cohort::queue
