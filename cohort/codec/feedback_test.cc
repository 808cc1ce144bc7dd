#include "cohort/codec/feedback.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::ElementsAre;

std::vector<float> in(const Piece& p) { return {static_cast<const float*>(p.data), static_cast<const float*>(p.data) + p.count}; }

// One step in which `sent` is what peers decode.
void step(Feedback& feedback, std::vector<float> gradient, double weight, std::vector<float> sent, bool committed = true) {
  feedback.begin(piece(std::span(gradient)), weight);
  feedback.note_sent(piece(std::span(sent)));
  feedback.settle(committed);
}

TEST(Feedback, AddsWhatWasNotSentToTheNextGradient) {
  Feedback feedback(2);
  step(feedback, {3, 5}, 1, {0, 5});
  EXPECT_THAT(feedback.residual(), ElementsAre(3, 0));
  std::vector<float> gradient{1, 1};
  EXPECT_THAT(in(feedback.begin(piece(std::span(gradient)), 1)), ElementsAre(4, 1));
  EXPECT_THAT(gradient, ElementsAre(1, 1));
}

TEST(Feedback, OfAStepThatIsCalledOffKeepsNothing) {
  Feedback feedback(1);
  step(feedback, {3}, 1, {1});
  step(feedback, {NAN}, 0.5, {0}, false);
  EXPECT_THAT(feedback.residual(), ElementsAre(2));
  EXPECT_EQ(feedback.weight(), 1);
  std::vector<float> gradient{1};
  feedback.begin(piece(std::span(gradient)), 1);
  feedback.settle(false);  // before anything was sent
  EXPECT_THAT(feedback.residual(), ElementsAre(2));
}

TEST(Feedback, OfElementsWhoseUpdateIsLeftOutKeepsWhatItHad) {
  Feedback feedback(3);
  step(feedback, {3, 5, 7}, 1, {1, 1, 1});
  std::vector<float> gradient{0, 0, 1}, sent{2, 4, 3};
  feedback.begin(piece(std::span(gradient)), 0.5);
  feedback.note_sent(piece(std::span(sent)));
  feedback.keep({0, 2});
  feedback.settle(true);
  EXPECT_THAT(feedback.residual(), ElementsAre(4, 8, 10)) << "at the new weight they move parameters as far as they would have";
}

TEST(Feedback, OfAStepThatIsDoneAgainCountsOnce) {
  Feedback feedback(1);
  step(feedback, {3}, 1, {1});
  std::vector<float> gradient{8}, sent{4};
  for (int again = 0; again < 3; ++again) {
    EXPECT_THAT(in(feedback.begin(piece(std::span(gradient)), 1)), ElementsAre(10));
    feedback.note_sent(piece(std::span(sent)));
  }
  feedback.settle(true);
  feedback.settle(true);
  EXPECT_THAT(feedback.residual(), ElementsAre(6));
}

TEST(Feedback, MovesParametersAsFarAsItWouldHaveAtItsOwnRate) {
  Feedback feedback(1);
  double moved = 0, wanted = 0;
  std::mt19937 random(3);
  for (const double rate : {0.0, 0.5, 0.25, 0.0, 0.0, 2.0, 0.125, 0.125}) {
    std::vector<float> gradient{std::floor(normal(random) * 64)};
    wanted += rate * static_cast<double>(gradient[0]);
    const float p = in(feedback.begin(piece(std::span(gradient)), rate))[0];
    std::vector<float> sent{std::floor(p / 16) * 16};
    moved += rate * static_cast<double>(sent[0]);
    feedback.note_sent(piece(std::span(sent)));
    feedback.settle(true);
    EXPECT_EQ(moved + feedback.weight() * static_cast<double>(feedback.residual()[0]), wanted) << rate;
  }
}

TEST(Feedback, ComesBackFromACheckpoint) {
  Feedback before(2), after(2);
  step(before, {3, 4}, 0.5, {1, 1});
  after.restore(before.residual(), before.weight());
  std::vector<float> gradient{1, 1};
  EXPECT_EQ(in(before.begin(piece(std::span(gradient)), 1)), in(after.begin(piece(std::span(gradient)), 1)));
  EXPECT_EQ(failure_of([&] { after.restore({}, 1); }).kind, Kind::bug);
}

TEST(Feedback, RefusesCallsOutOfOrderAndWeightsThatAreNone) {
  Feedback feedback(1);
  std::vector<float> one{1}, two{1, 2};
  EXPECT_EQ(failure_of([&] { feedback.note_sent(piece(std::span(one))); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { feedback.begin(piece(std::span(two)), 1); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { feedback.begin(piece(std::span(one)), NAN); }).kind, Kind::usage);
  feedback.begin(piece(std::span(one)), 1);
  EXPECT_EQ(failure_of([&] { feedback.settle(true); }).kind, Kind::bug);
  feedback.settle(true);  // none under way
}

}  // namespace
}  // namespace cohort::codec
