#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/data/loader.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

// Three samples of 2 features, with 2 targets each.
std::shared_ptr<const Dataset> regression() {
  const std::vector<float> inputs{1, 1000001, 2, 1000002, 3, 1000003}, targets{0.5F, -1, 1.5F, -2, 2.5F, -3};
  return std::make_shared<MemoryDataset>(Form{.input = Input::floats, .shape = {2}, .targets = 2}, "three", bytes_of(inputs),
                                         std::vector<std::int64_t>{}, targets);
}

Batch all_of(std::shared_ptr<const Dataset> set, const std::string& transforms) {
  const Transforms parsed = Transforms::parse(transforms, *set);
  Loader loader(set, {.share = {.batch = set->size(), .sampler = "in_order"}, .transforms = parsed, .threads = 0});
  return loader.next(Deadline::in(20s));
}

}  // namespace

TEST(FloatSet, BatchesHoldItsValuesAndTargetsAsTheyAre) {
  const Batch batch = all_of(regression(), "");
  ASSERT_EQ(batch.count, 3);
  EXPECT_THAT(std::span(batch.floats(), 6), ElementsAre(1, 1000001, 2, 1000002, 3, 1000003));
  EXPECT_THAT(std::span(batch.targets(), 6), ElementsAre(0.5F, -1, 1.5F, -2, 2.5F, -3));
  EXPECT_EQ(batch.form->labels(), 2);
}

TEST(FloatSet, NormaliseMeasuresEachFeatureAndKeepsSmallDifferencesOfLargeValues) {
  const Batch batch = all_of(regression(), "normalise");
  const float one = std::sqrt(1.5F);
  EXPECT_THAT(std::span(batch.floats(), 6),
              ElementsAre(FloatNear(-one, 1e-6F), FloatNear(-one, 1e-6F), 0, 0, FloatNear(one, 1e-6F), FloatNear(one, 1e-6F)));
}

TEST(FloatSet, NormaliseTakesItsMeasuresBackAndMeasuresNothing) {
  const auto set = regression();
  const std::string text = Transforms::parse("normalise", *set).text();
  EXPECT_EQ(Transforms::parse(text, *set).text(), text);
  EXPECT_THAT(text, HasSubstr("1000002"));
}

TEST(FloatSet, AConstantFeatureBecomesZero) {
  const std::vector<float> values{0.1F, 0.1F, 0.1F};
  const auto set = std::make_shared<MemoryDataset>(Form{.input = Input::floats, .shape = {1}, .classes = 1}, "constant", bytes_of(values),
                                                   std::vector<std::int64_t>{0, 0, 0});
  EXPECT_THAT(std::span(all_of(set, "normalise").floats(), 3), ElementsAre(0, 0, 0));
}

TEST(FloatSet, OfSeveralSizesTheFirstIsTheFeature) {
  const std::vector<float> values{0, 2, 10, 30};
  const auto set = std::make_shared<MemoryDataset>(Form{.input = Input::floats, .shape = {2, 2}, .classes = 1}, "signals", bytes_of(values),
                                                   std::vector<std::int64_t>{0});
  EXPECT_THAT(std::span(all_of(set, "normalise").floats(), 4), ElementsAre(-1, 1, -1, 1));
}

TEST(FloatSet, TransformsOfThePlaneAreRefusedByName) {
  for (const std::string name : {"flip", "crop(pad=1)", "rotate", "shift", "zoom"}) {
    const Error error = failure_of([&] { Transforms::parse(name, *regression()); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, AllOf(HasSubstr(name.substr(0, name.find('('))), HasSubstr("float values")));
  }
  EXPECT_THAT(failure_of([] { Transforms::parse("normalise(mean=1/2/3)", *regression()); }).what, HasSubstr("2 channels or features"));
}

TEST(FloatSet, RefusesMemoryOfAnotherSize) {
  const std::vector<float> values{1, 2, 3};
  const auto make = [&](std::vector<float> targets) {
    MemoryDataset({.input = Input::floats, .shape = {3}, .targets = 1}, "x", bytes_of(values), {}, std::move(targets));
  };
  EXPECT_NO_THROW(make({1}));
  EXPECT_EQ(failure_of([&] { make({1, 2}); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { make({}); }).kind, Kind::usage);
}

}  // namespace cohort::data
