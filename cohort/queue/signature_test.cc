#include "cohort/queue/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::queue {
namespace {

using testing::HasSubstr;

Operation reduce_of(std::vector<std::int64_t> shape, Dtype dtype = Dtype::f32) {
  std::size_t count = 1;
  for (const auto length : shape) count *= static_cast<std::size_t>(length);
  Operation o{.collective = Collective::all_reduce, .name = "grad"};
  o.parts.push_back({.in = {nullptr, count, dtype}, .shape = std::move(shape)});
  return o;
}

std::string difference(const Operation& left, const Operation& right) {
  return mismatch("grad", Rank{0}, signature_of(left), Rank{2}, signature_of(right)).value_or("");
}

TEST(Signature, EqualOperationsAgree) { EXPECT_EQ(difference(reduce_of({2, 3}), reduce_of({2, 3})), ""); }

TEST(Signature, MismatchedTypesAreReportedInHorovodsWords) {
  const auto text = difference(reduce_of({4}), reduce_of({4}, Dtype::f64));
  EXPECT_THAT(text, HasSubstr("Mismatched data types: One rank had type f32, but another rank had type f64"));
  EXPECT_THAT(text, HasSubstr("'grad': rank 0 has f32, rank 2 has f64"));
}

TEST(Signature, MismatchedShapesNameBoth) {
  EXPECT_THAT(
      difference(reduce_of({2, 3}), reduce_of({3, 2})),
      HasSubstr(
          "Mismatched allreduce tensor shapes: One rank sent a tensor of shape [2, 3], but another rank sent a tensor of shape [3, 2]"));
}

TEST(Signature, EveryOtherFieldIsComparedToo) {
  const Operation base = reduce_of({4});
  Operation collective = base, op = base, scale = base, group = base, device = base, codec = base;
  collective.collective = Collective::broadcast;
  op.op = Op::max;
  scale.postscale = 0.5;
  group.parts.push_back(group.parts.front());
  device.parts[0].in.device = Device::cuda;
  codec.codec = "int8";
  EXPECT_THAT(difference(base, collective),
              HasSubstr("Mismatched operations: One rank did the operation allreduce, but another rank did the operation broadcast"));
  EXPECT_THAT(difference(base, op),
              HasSubstr("Mismatched reduction operations: One rank used the op sum, but another rank used the op max"));
  EXPECT_THAT(difference(base, scale), HasSubstr("Mismatched prescale and/or postscale factors: One rank used the factors 1 and 1, but"));
  EXPECT_THAT(difference(base, group), HasSubstr("Mismatched group sizes"));
  EXPECT_THAT(difference(base, device), HasSubstr("Mismatched devices"));
  EXPECT_THAT(difference(base, codec), HasSubstr("Mismatched codecs: One rank sent its tensors by codec none, but another rank"));
}

TEST(Signature, BroadcastRootsAreCompared) {
  Operation left = reduce_of({4});
  left.collective = Collective::broadcast;
  left.root = Rank{0};
  Operation right = left;
  right.root = Rank{1};
  EXPECT_THAT(difference(left, right),
              HasSubstr("Mismatched broadcast root ranks: One rank specified root rank 0, but another rank specified root rank 1"));
}

TEST(Signature, GatheredFirstDimensionsMayDifferAndOthersMayNot) {
  Operation left = reduce_of({4, 3}), same = reduce_of({7, 3}), other = reduce_of({4, 2});
  for (Operation* o : {&left, &same, &other}) o->collective = Collective::all_gather;
  EXPECT_EQ(difference(left, same), "");
  EXPECT_THAT(difference(left, other), HasSubstr("Mismatched allgather tensor shapes: One rank sent a tensor of shape [*, 3], but"));
}

TEST(Signature, CountStandsInForAMissingShape) {
  Operation o = reduce_of({6});
  o.parts[0].shape.clear();
  EXPECT_EQ(signature_of(o).parts[0].shape, std::vector<std::int64_t>{6});
}

// What check() must refuse, and a word of the reason.
struct Bad {
  const char* label;
  const char* reason;
  std::function<void(Operation&)> spoil;
};

class BadOperations : public testing::TestWithParam<Bad> {};

TEST_P(BadOperations, AreRefusedLocallyWithTheReason) {
  float memory[8] = {};
  Operation o{.collective = Collective::all_reduce, .name = "grad"};
  o.parts.push_back({.in = collective::piece(std::span<float>(memory))});
  ASSERT_NO_THROW(check(o, Rank{1}, 4));
  GetParam().spoil(o);
  try {
    check(o, Rank{1}, 4);
    FAIL() << GetParam().label << " was accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    EXPECT_THAT(failure.what(), HasSubstr(GetParam().reason));
    EXPECT_THAT(failure.what(), HasSubstr("on rank 1"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Check, BadOperations,
    testing::Values(
        Bad{"no parts", "at least one part", [](Operation& o) { o.parts.clear(); }},
        Bad{"synchronous collective", "not asynchronous", [](Operation& o) { o.collective = Collective::send; }},
        Bad{"barrier with data", "carries no data", [](Operation& o) { o.collective = Collective::barrier; }},
        Bad{"root", "root rank 4 is not one of the 4 ranks", [](Operation& o) { o.collective = Collective::broadcast, o.root = Rank{4}; }},
        Bad{"bool average", "cannot be reduced by average", [](Operation& o) { o.parts[0].in.dtype = Dtype::boolean, o.op = Op::average; }},
        Bad{"shape", "shape [3] does not hold 8 elements", [](Operation& o) { o.parts[0].shape = {3}; }},
        Bad{"negative shape", "negative",
            [](Operation& o) {
              o.parts[0].shape = {-2, -4};
            }},
        Bad{"out count", "out has 4", [](Operation& o) { o.parts[0].out = o.parts[0].in.part(0, 4); }},
        Bad{"out type", "out is f64", [](Operation& o) { o.parts[0].out = o.parts[0].in, o.parts[0].out.dtype = Dtype::f64; }},
        Bad{"scaled broadcast", "only reductions scale",
            [](Operation& o) { o.collective = Collective::broadcast, o.root = Rank{0}, o.prescale = 2; }},
        Bad{"infinite scale", "finite", [](Operation& o) { o.prescale = INFINITY; }},
        Bad{"allocate", "only all_gather and all_to_all", [](Operation& o) { o.allocate = [](auto, auto) { return nullptr; }; }},
        Bad{"scaled codec", "without scales", [](Operation& o) { o.codec = "int8", o.reduce = [](auto&, auto&) {}, o.postscale = 2; }},
        Bad{"codec of doubles", "reduces f32 in place, not f64",
            [](Operation& o) { o.codec = "int8", o.reduce = [](auto&, auto&) {}, o.parts[0].in.dtype = Dtype::f64; }},
        Bad{"codec by name alone", "come together", [](Operation& o) { o.codec = "int8"; }},
        Bad{"splits", "add up to 7, not to its 8 elements",
            [](Operation& o) {
              o.collective = Collective::all_to_all, o.parts[0].counts = {1, 2, 2, 2};
            }},
        Bad{"number of splits", "2 counts for 4 ranks",
            [](Operation& o) {
              o.collective = Collective::all_to_all, o.parts[0].counts = {4, 4};
            }},
        Bad{"uneven without splits", "does not split evenly",
            [](Operation& o) { o.collective = Collective::all_to_all, o.parts[0].in.count = 7; }},
        Bad{"block", "where this rank's block has 2",
            [](Operation& o) { o.collective = Collective::reduce_scatter, o.parts[0].out = o.parts[0].in.part(0, 3); }}),
    [](const auto& test) {
      std::string label = test.param.label;
      for (char& c : label) c = c == ' ' ? '_' : c;
      return label;
    });

}  // namespace
}  // namespace cohort::queue
