#include <gmock/gmock.h>

#include "cohort/codec/feedback.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::ElementsAre;

TEST(Threshold, SendsWhatIsLargerThanTheValue) {
  const Layout layout = layout_of({16});
  std::vector<float> values(16);
  values[2] = 2, values[5] = -2.5F, values[9] = 1.99F, values[15] = -7;
  auto wanted = values;
  wanted[2] = wanted[9] = 0;  // larger, not equal
  EXPECT_EQ(sent(*make("threshold(value=2, cap=1)"), layout, values), wanted);
  EXPECT_EQ(encoded(*make("threshold(value=2, cap=1)"), layout, values).size(), 4 + 2 * 8);
}

TEST(Threshold, SendsTheLargestWhereThatIsTooMuchAndKeepsTheRest) {
  const Layout layout = layout_of({16});
  std::vector<float> values(16);
  for (std::size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(i) + 1;
  const auto codec = make("threshold(value=2, cap=0.25)");
  EXPECT_EQ(codec->bound(layout, layout.all()), 4 + 4 * 8);
  Feedback feedback(16);
  std::vector<std::size_t> entries;
  for (int step = 0; step < 6; ++step) {
    const std::vector<float> g = step == 0 ? values : std::vector<float>(16);
    const Piece p = feedback.begin(whole(g), 1);
    const std::vector<float> with(static_cast<const float*>(p.data), static_cast<const float*>(p.data) + 16);
    entries.push_back((encoded(*codec, layout, with).size() - 4) / 8);
    feedback.note_sent(whole(sent(*codec, layout, with)));
    feedback.settle(true);
  }
  EXPECT_THAT(entries, ElementsAre(4, 4, 4, 2, 0, 0));  // 16 .. 13, 12 .. 9, 8 .. 5, 4 and 3
  EXPECT_EQ(feedback.residual()[1], 2);
  EXPECT_EQ(feedback.residual()[2], 0);
}

TEST(Threshold, KeepsNoMoreOfAnElementThanTheValueWhileTheCapIsNotReached) {
  const auto codec = make("threshold(value=3, cap=1)");
  const Layout layout = layout_of({500});
  Feedback feedback(layout.count);
  for (unsigned step = 0; step < 100; ++step) {
    const auto g = noise(layout, step);
    const Piece p = feedback.begin(whole(g), 1);
    const std::vector<float> with(static_cast<const float*>(p.data), static_cast<const float*>(p.data) + p.count);
    feedback.note_sent(whole(sent(*codec, layout, with)));
    feedback.settle(true);
    for (const float e : feedback.residual()) ASSERT_LE(std::abs(e), 3);
  }
}

TEST(Threshold, OfSmallGradientsSendsNothing) {
  const Layout layout = layout_of({300});
  EXPECT_EQ(encoded(*make("threshold(value=1e9)"), layout, noise(layout, 1)).size(), 4u);
  EXPECT_EQ(make("threshold")->contraction(layout), 0);
  EXPECT_TRUE(make("threshold")->variable());
}

}  // namespace
}  // namespace cohort::codec
