#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/feedback.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::HasSubstr;
using Values = std::vector<float>;

const Layout kLayout = layout_of({3, 100});

Values gradient(unsigned seed) {  // dyadic: sums are exact
  Values g(kLayout.count);
  std::mt19937 random(seed);
  for (const TensorPlace& t : kLayout.tensors)
    for (std::size_t i = 0; i < t.count; ++i) g[t.first + i] = std::ldexp(std::round(normal(random) * 64), -6);
  return g;
}

struct Rank {
  explicit Rank(const std::string& spec) : codec(make(spec)), feedback(kLayout.count, codec->momentum()) {}
  Values step(const Values& g, double weight = 1, double unit = 1, bool committed = true) {
    const Piece p = feedback.begin(whole(g), weight, unit);
    const auto* const v = static_cast<const float*>(p.data);
    Values c = sent(*codec, kLayout, Values(v, v + p.count));
    feedback.note_sent(whole(c));
    feedback.settle(committed);
    return c;
  }
  float velocity(std::size_t i) { return static_cast<const float*>(feedback.velocity().data)[i]; }
  std::unique_ptr<Codec> codec;
  Feedback feedback;
};

TEST(Dgc, OfRatioOneWithoutMaskingIsSgdWithMomentum) {
  Rank dgc("dgc(ratio=1, momentum=0.5, masking=false)"), nesterov("dgc(ratio=1, momentum=0.5, masking=false, nesterov=true)");
  std::vector<double> b(kLayout.count);
  for (unsigned s = 0; s < 8; ++s) {
    const Values g = gradient(s), c = dgc.step(g), n = nesterov.step(g);
    for (std::size_t i = 0; i < b.size(); ++i) {  // as torch.optim.SGD has it
      b[i] = 0.5 * b[i] + static_cast<double>(g[i]);
      ASSERT_EQ(static_cast<double>(c[i]), b[i]) << s;
      ASSERT_EQ(static_cast<double>(n[i]), static_cast<double>(g[i]) + 0.5 * b[i]) << s;
    }
  }
}

TEST(Dgc, OfRatioOneWithMaskingIsSgdWithout) {
  Rank dgc("dgc(ratio=1, momentum=0.5)");
  for (unsigned s = 0; s < 8; ++s) EXPECT_EQ(dgc.step(gradient(s)), gradient(s)) << s;
}

TEST(Dgc, KeepsItsMomentumThroughChangesOfRateAndLossScale) {
  Rank dgc("dgc(ratio=1, momentum=0.5, masking=false)");
  std::vector<double> b(kLayout.count);
  for (unsigned s = 0; s < 8; ++s) {
    const double scale = s < 3 ? 4 : 16, rate = s < 5 ? 1 : 0.25;
    Values g = gradient(s);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0.5 * b[i] + static_cast<double>(g[i]);
    for (float& v : g) v *= static_cast<float>(scale);
    const Values c = dgc.step(g, rate / scale, 1 / scale);
    for (std::size_t i = 0; i < b.size(); ++i) ASSERT_EQ(static_cast<double>(c[i]) / scale, b[i]) << s;
  }
}

// Sent and kept are the velocities' sum.
TEST(Dgc, WithoutMaskingSendsEveryVelocityOnce) {
  Rank dgc("dgc(ratio=0.05, momentum=0.5, masking=false)");
  std::vector<double> u(kLayout.count), all(kLayout.count), out(kLayout.count);
  for (unsigned s = 0; s < 10; ++s) {
    const Values g = gradient(s), c = dgc.step(g);
    for (std::size_t i = 0; i < u.size(); ++i) {
      u[i] = 0.5 * u[i] + static_cast<double>(g[i]);
      all[i] += u[i];
      out[i] += static_cast<double>(c[i]);
      ASSERT_EQ(out[i] + static_cast<double>(dgc.feedback.residual()[i]), all[i]) << s;
    }
  }
}

TEST(Dgc, MasksTheVelocityOfWhatItSendsAndOfNothingElse) {
  Rank dgc("dgc(ratio=0.05, momentum=0.5)");
  std::vector<double> u(kLayout.count), v(kLayout.count);
  for (unsigned s = 0; s < 10; ++s) {
    const Values g = gradient(s), c = dgc.step(g);
    for (std::size_t i = 0; i < u.size(); ++i) {
      u[i] = 0.5 * u[i] + static_cast<double>(g[i]);
      v[i] += u[i];
      if (c[i] != 0) {
        ASSERT_EQ(static_cast<double>(c[i]), v[i]);
        u[i] = v[i] = 0;
      }
      ASSERT_EQ(static_cast<double>(dgc.velocity(i)), u[i]) << s;
      ASSERT_EQ(static_cast<double>(dgc.feedback.residual()[i]), v[i]) << s;
    }
  }
}

TEST(Dgc, OfAStepThatIsCalledOffOrLeftOutKeepsTheVelocity) {
  Rank dgc("dgc(ratio=0.05, momentum=0.5)"), straight("dgc(ratio=0.05, momentum=0.5)");
  dgc.step(gradient(1));
  straight.step(gradient(1));
  Values bad = gradient(2);
  bad[5] = NAN;
  dgc.step(bad, 1, 1, false);
  EXPECT_EQ(dgc.step(gradient(3)), straight.step(gradient(3)));
  const float before = dgc.velocity(20);
  const Values zeros(kLayout.count);
  dgc.feedback.begin(whole(zeros), 1);
  dgc.feedback.note_sent(whole(zeros));
  dgc.feedback.keep({16, 100});
  dgc.feedback.settle(true);
  EXPECT_EQ(dgc.velocity(20), before);
}

TEST(Dgc, SendsMoreAtFirstAndLessByFactorsOfFour) {
  const auto codec = make("dgc(ratio=0.001, warmup=40)");
  const Layout layout = layout_of({10000});
  EXPECT_TRUE(codec->variable());
  const Values x = noise(layout, 1);
  const auto entries = [&](std::int64_t step) {
    Buffer out(codec->bound(layout, layout.all()));
    return (codec->encode({.layout = layout, .range = layout.all(), .values = whole(x), .step = step}, out) - 4) / 8;
  };
  EXPECT_EQ(codec->bound(layout, layout.all()), 4 + 8 * 2500u);
  for (const auto& [step, count] : {std::pair{1, 2500u}, {10, 2500u}, {11, 625u}, {20, 625u}, {21, 156u}, {31, 39u}, {40, 39u}, {41, 10u}})
    EXPECT_EQ(entries(step), count) << step;
  EXPECT_EQ(make("dgc(ratio=0.001)")->bound(layout, layout.all()), 4 + 8 * 10u);
  EXPECT_FALSE(make("dgc")->variable());
  EXPECT_EQ(make("dgc(ratio=0.5, warmup=40)")->bound(layout, layout.all()), 4 + 8 * 5000u);
}

TEST(Dgc, GoesWithPlainSgdAlone) {
  const auto codec = make("dgc");
  check_optimizer(*codec, "sgd(lr=0.1, momentum=0, weight_decay=0.01)");
  check_optimizer(*codec, "sgd(lr=0.1)");
  check_optimizer(*make("topk"), "adam");
  for (const char* other : {"sgd(momentum=0.9)", "adam(lr=0.001)", "lars"}) {
    const Error error = failure_of([&] { check_optimizer(*codec, other); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("take optimizer=sgd(momentum=0)")) << other;
  }
}

}  // namespace
}  // namespace cohort::codec
