#include "cohort/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "cohort/base/failure_of.h"
#include "cohort/base/slowdown.h"

namespace cohort::data {
namespace {

using testing::HasSubstr;

Deadline soon() { return Deadline::in(20s); }

std::vector<std::int64_t> labels(const Batch& b) { return {b.labels(), b.labels() + b.count * b.form->labels()}; }
std::vector<float> pixels(const Batch& b) { return {b.pixels(), b.pixels() + b.count * b.form->elements()}; }

std::shared_ptr<const Dataset> images() {
  static const auto set = open_dataset("synthetic(shape=1x8x8, samples=101)");
  return set;
}

LoaderOptions with(int threads, std::string_view transforms = "flip, crop(pad=2), rotate(degrees=9), normalise") {
  return {.share = {.batch = 8, .seed = 3}, .transforms = Transforms::parse(transforms, *images()), .threads = threads};
}

// A set that fails at one sample, or waits at a gate.
class Odd final : public Dataset {
 public:
  Odd(std::int64_t bad, std::shared_future<void> gate)
      : Dataset({.shape = {1, 1, 1}, .classes = 1}, 20), bad_(bad), gate_(std::move(gate)) {}
  Sample sample(std::int64_t index, Scratch& scratch) const override {
    if (gate_.valid()) gate_.wait_for(20s);
    if (index == bad_) throw_failure(Kind::corrupt, "broken at byte 12");
    scratch.assign(1, 0);
    return {.input = scratch.data()};
  }
  std::string where(std::int64_t index) const override { return "cat/" + std::to_string(index) + ".jpg"; }

 private:
  std::int64_t bad_;
  std::shared_future<void> gate_;
};

LoaderOptions in_order(int threads, std::int64_t batch) { return {.share = {.batch = batch, .sampler = "in_order"}, .threads = threads}; }

}  // namespace

TEST(Loader, GivesTheSameBitsWhateverTheNumberOfThreads) {
  Loader none(images(), with(0)), one(images(), with(1)), four(images(), with(4));
  for (int i = 0; i < 40; ++i) {  // three epochs
    const Batch a = none.next(soon()), b = one.next(soon()), c = four.next(soon());
    ASSERT_EQ(a.step, b.step);
    ASSERT_EQ(a.epoch, c.epoch);
    ASSERT_EQ(labels(a), labels(b));
    ASSERT_EQ(pixels(a), pixels(b));
    ASSERT_EQ(labels(a), labels(c));
    ASSERT_EQ(pixels(a), pixels(c));
  }
}

TEST(Loader, ManyRanksMakeTheImagesOneRankWouldMake) {
  LoaderOptions whole = with(1);
  whole.share.batch = 24;
  Loader one(images(), whole);
  std::vector<std::unique_ptr<Loader>> three;
  for (int rank = 0; rank < 3; ++rank) {
    LoaderOptions mine = with(rank);
    mine.share.ranks = 3;
    mine.share.rank = rank;
    three.push_back(std::make_unique<Loader>(images(), mine));
  }
  for (int i = 0; i < 12; ++i) {
    const Batch all = one.next(soon());
    std::vector<float> joined;
    for (auto& loader : three) {
      const Batch part = loader->next(soon());
      EXPECT_EQ(part.global_count, all.count);
      const auto some = pixels(part);
      joined.insert(joined.end(), some.begin(), some.end());
    }
    ASSERT_EQ(joined, pixels(all));
  }
}

TEST(Loader, GoesOnWhereAnotherStopped) {
  Loader whole(images(), with(2));
  std::vector<Batch> seen;
  for (int i = 0; i < 30; ++i) seen.push_back(whole.next(soon()));
  for (const std::size_t at : {0, 5, 12, 13, 20}) {
    LoaderOptions options = with(2);
    options.start = {seen[at].epoch, seen[at].step + 1};
    Loader later(images(), options);
    for (std::size_t i = at + 1; i < at + 8; ++i) {
      const Batch batch = later.next(soon());
      ASSERT_EQ(batch.epoch, seen[i].epoch);
      ASSERT_EQ(batch.step, seen[i].step);
      ASSERT_EQ(pixels(batch), pixels(seen[i]));
    }
  }
}

TEST(Loader, ReusesTheMemoryOfBatchesThatAreGone) {
  Loader loader(images(), with(2));
  for (int i = 0; i < 200; ++i) loader.next(soon());
  EXPECT_LE(loader.batches_allocated(), 4u + 2u);
}

TEST(Loader, BatchesOutliveIt) {
  Batch batch;
  {
    Loader loader(images(), with(1));
    batch = loader.next(soon());
  }
  EXPECT_EQ(pixels(batch).size(), 8u * 64);
}

TEST(Loader, ThrowsWhatAThreadMetInItsTurnAndEverAfter) {
  for (const int threads : {0, 1, 3}) {
    Loader loader(std::make_shared<Odd>(7, std::shared_future<void>{}), in_order(threads, 3));
    EXPECT_EQ(loader.next(soon()).count, 3);
    EXPECT_EQ(loader.next(soon()).count, 3);
    for (int again = 0; again < 2; ++again) {
      const Error error = failure_of([&] { loader.next(soon()); });
      EXPECT_EQ(error.kind, Kind::corrupt);
      EXPECT_EQ(error.what, "epoch 0, step 2: sample 7 (cat/7.jpg): broken at byte 12");
    }
  }
}

TEST(Loader, SaysWhichBatchWasLateAndDeliversItAfterwards) {
  std::promise<void> gate;
  Loader loader(std::make_shared<Odd>(-1, gate.get_future().share()), in_order(1, 3));
  const Error error = failure_of([&] { loader.next(Deadline::in(1ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("epoch 0, step 0"));
  gate.set_value();
  EXPECT_EQ(loader.next(soon()).step, 0);
}

TEST(Loader, StopsPromptlyInTheMiddleOfABatch) {
  std::promise<void> gate;
  auto loader = std::make_unique<Loader>(std::make_shared<Odd>(-1, gate.get_future().share()), in_order(2, 20));
  std::thread opener([&] { gate.set_value(); });
  const auto start = Clock::now();
  loader.reset();
  EXPECT_LT(Clock::now() - start, 5s * slowdown());
  opener.join();
}

TEST(Loader, EndsAfterTheEpochsAskedFor) {
  LoaderOptions options = with(2);
  options.epochs = 2;
  options.start.step = 3;
  Loader loader(images(), options);
  EXPECT_EQ(loader.steps(0), 13);
  std::int64_t samples = 0;
  for (int i = 0; i < 13 - 3 + 13; ++i) samples += loader.next(soon()).count;
  EXPECT_EQ(samples, 101 - 3 * 8 + 101);
  EXPECT_EQ(failure_of([&] { loader.next(soon()); }).kind, Kind::usage);
}

TEST(Loader, MayGiveARankNothingInTheLastStep) {
  const auto set = open_dataset("synthetic(shape=1x2x2, samples=5)");
  Loader loader(set, {.share = {.ranks = 4, .rank = 3, .batch = 1}});
  EXPECT_EQ(loader.next(soon()).count, 1);
  const Batch last = loader.next(soon());
  EXPECT_EQ(last.count, 0);
  EXPECT_EQ(last.global_count, 1);
}

TEST(Loader, CarriesTokensAndTheNextOnes) {
  const auto set = open_dataset("synthetic(task=tokens, shape=16, samples=9)");
  Loader loader(set, {.share = {.batch = 4}});
  const Batch batch = loader.next(soon());
  for (int i = 0; i + 1 < 16; ++i) EXPECT_EQ(batch.labels()[i], batch.tokens()[i + 1]);
}

TEST(Loader, RefusesWhatCannotBe) {
  LoaderOptions late = with(1);
  late.start.step = 14;
  EXPECT_THAT(failure_of([&] { Loader(images(), late); }).what, HasSubstr("13 steps"));
  LoaderOptions other = with(1);
  other.share.samples = 5;
  EXPECT_THAT(failure_of([&] { Loader(images(), other); }).what, HasSubstr("the set has 101"));
  EXPECT_EQ(failure_of([&] { Loader(images(), with(-1)); }).kind, Kind::usage);
}

}  // namespace cohort::data
