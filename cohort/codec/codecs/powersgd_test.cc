#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::HasSubstr;
using Matrix = std::vector<float>;

Layout matrices(std::initializer_list<Shape> shapes) {
  Layout layout;
  for (const Shape& shape : shapes) {
    std::size_t count = 1;
    for (const auto size : shape) count *= static_cast<std::size_t>(size);
    layout.tensors.push_back({"t" + std::to_string(layout.tensors.size()), layout.count, count, shape});
    layout.count = round_up(layout.count + count, 16);
  }
  return layout;
}

// The sum of so many products of a column and a row, in every tensor.
Matrix of_rank(const Layout& layout, std::size_t rank, unsigned seed) {
  Matrix values(layout.count);
  std::mt19937 random(seed);
  for (const TensorPlace& t : layout.tensors) {
    const auto rows = static_cast<std::size_t>(t.shape[0]), columns = t.count / rows;
    std::vector<double> m(t.count);
    for (std::size_t k = 0; k < rank; ++k) {
      std::vector<float> left(rows), right(columns);
      for (float& v : left) v = normal(random);
      for (float& v : right) v = normal(random);
      for (std::size_t i = 0; i < t.count; ++i) m[i] += static_cast<double>(left[i / columns]) * static_cast<double>(right[i % columns]);
    }
    for (std::size_t i = 0; i < t.count; ++i) values[t.first + i] = static_cast<float>(m[i]);
  }
  return values;
}

double inner(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}
Matrix difference(const Matrix& a, const Matrix& b) {
  Matrix out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}
double error(const Matrix& found, const Matrix& wanted) {
  const Matrix d = difference(found, wanted);
  return std::sqrt(inner(d, d) / inner(wanted, wanted));
}

// One step, which begins with what the last one left, and leaves the same to the next.
Matrix step(const Codec& codec, const Layout& layout, const Matrix& x, std::vector<float>& memory, std::uint64_t number = 1) {
  Buffer payload(codec.bound(layout, layout.all()));
  codec.encode({.layout = layout, .range = layout.all(), .values = whole(x), .random = Random(1, number), .memory = memory}, payload);
  codec.remember(layout, payload, memory);
  return absorbed(codec, layout, {payload}, layout.all());
}

TEST(PowerSgd, TakesFourTimesItsRankTimesBothSidesBytes) {
  const Layout convolution = matrices({{512, 512, 3, 3}});
  for (const std::size_t rank : {1u, 2u, 4u}) {
    const auto codec = make("powersgd(rank=" + std::to_string(rank) + ")");
    const std::size_t bytes = codec->bound(convolution, convolution.all());
    EXPECT_EQ(bytes, 4 * rank * (512 + 4608));
    EXPECT_DOUBLE_EQ(4.0 * 512 * 4608 / static_cast<double>(bytes), 460.8 / static_cast<double>(rank));
    EXPECT_EQ(codec->round_bytes(0, convolution, convolution.all()), 4 * rank * 512);
  }
}

TEST(PowerSgd, IsExactInOneStepWhereTheRankIsNoLarger) {
  const Layout layout = matrices({{30, 40}, {64, 3, 3, 3}, {200, 10}});
  for (const std::size_t rank : {1u, 2u, 3u}) {
    const auto codec = make("powersgd(rank=" + std::to_string(rank) + ")");
    for (std::size_t own = 1; own <= rank; ++own) {
      const Matrix m = of_rank(layout, own, static_cast<unsigned>(10 * rank + own));
      EXPECT_LT(error(sent(*codec, layout, m, Random(3, own)), m), 1e-5) << own << " by " << rank;
    }
    const Matrix more = of_rank(layout, rank + 1, 7);
    EXPECT_GT(error(sent(*codec, layout, more), more), 1e-2) << rank;
  }
}

// Where all matrices of one shape are one batch, a single norm for it makes each of four half as long.
TEST(PowerSgd, OfRankOneNormalizesEveryOneOfEqualShapesByItself) {
  const Layout layout = matrices({{24, 24}, {24, 24}, {24, 24}, {24, 24}});
  const Matrix m = of_rank(layout, 1, 5), c = sent(*make("powersgd(rank=1)"), layout, m);
  for (const TensorPlace& t : layout.tensors) {
    const auto part = [&](const Matrix& all) { return Matrix(all.data() + t.first, all.data() + t.first + t.count); };
    EXPECT_LT(error(part(c), part(m)), 1e-5) << t.name;
  }
}

TEST(PowerSgd, ProjectsSoThatWhatIsLeftIsOrthogonal) {
  const Layout layout = matrices({{40, 60}});
  const Matrix m = noise(layout, 1);
  for (const char* spec : {"powersgd(rank=1)", "powersgd(rank=5)"}) {
    const Matrix c = sent(*make(spec), layout, m), left = difference(m, c);
    EXPECT_NEAR(inner(c, left), 0, 1e-4 * inner(m, m)) << spec;
    EXPECT_NEAR(inner(c, c) + inner(left, left), inner(m, m), 1e-4 * inner(m, m)) << spec;
  }
}

// P = M q, P^ = P / |P|, C = P^ (M^T P^)^T for a given q, in double.
TEST(PowerSgd, IsTheFormulaWithTheDirectionsThatWereKept) {
  const Layout layout = matrices({{20, 30}});
  const Matrix m = noise(layout, 2);
  std::vector<float> memory(30);
  for (std::size_t j = 0; j < 30; ++j) memory[j] = static_cast<float>(j) - 7;
  std::vector<double> p(20), q(30);
  double norm = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    for (std::size_t j = 0; j < 30; ++j) p[i] += static_cast<double>(m[30 * i + j]) * static_cast<double>(memory[j]);
    norm += p[i] * p[i];
  }
  for (double& v : p) v /= std::sqrt(norm);
  for (std::size_t i = 0; i < 20; ++i)
    for (std::size_t j = 0; j < 30; ++j) q[j] += static_cast<double>(m[30 * i + j]) * p[i];
  const Matrix c = step(*make("powersgd(rank=1)"), layout, m, memory);
  for (std::size_t i = 0; i < 20; ++i)
    for (std::size_t j = 0; j < 30; ++j) ASSERT_NEAR(static_cast<double>(c[30 * i + j]), p[i] * q[j], 1e-5);
  for (std::size_t j = 0; j < 30; ++j) EXPECT_NEAR(static_cast<double>(memory[j]), q[j], 1e-5);
}

// Singular values 8, 4, 1, 1 ..: of rank 2, nothing is closer than what leaves the others.
TEST(PowerSgd, ComesToTheBestApproximationAsItGoesOnFromTheLastStep) {
  const Layout layout = matrices({{16, 16}});
  Matrix m(layout.count);
  for (std::size_t i = 0; i < 16; ++i) m[16 * i + (5 * i + 3) % 16] = i == 4 ? 8 : i == 9 ? 4 : 1;
  const auto codec = make("powersgd(rank=2, min_rate=1)");
  std::vector<float> memory(memory_of(*codec, layout.tensors[0]));
  double last = 0;
  for (std::uint64_t number = 1; number <= 20; ++number) last = error(step(*codec, layout, m, memory, number), m);
  EXPECT_NEAR(last, std::sqrt(14.0 / (64 + 16 + 14)), 1e-5);
}

TEST(PowerSgd, OfZerosIsZeroAndDoesNotStayThere) {
  const Layout layout = matrices({{12, 30}});
  const auto codec = make("powersgd(rank=2)");
  std::vector<float> memory(memory_of(*codec, layout.tensors[0]));
  EXPECT_EQ(memory.size(), 60u);
  const Matrix m = of_rank(layout, 2, 3), zeros(layout.count);
  step(*codec, layout, m, memory, 1);
  EXPECT_THAT(step(*codec, layout, zeros, memory, 2), testing::Each(0.0F));
  EXPECT_THAT(memory, testing::Each(0.0F));
  EXPECT_LT(error(step(*codec, layout, m, memory, 3), m), 1e-5);
  const Matrix one = of_rank(layout, 1, 4);  // one direction is left over, and comes back
  step(*codec, layout, one, memory, 4);
  EXPECT_LT(error(step(*codec, layout, m, memory, 5), m), 1e-4);
}

TEST(PowerSgd, SendsVectorsAndWhatWouldNotSaveEnoughAsTheyAre) {
  const Layout layout = matrices({{500}, {4, 4}, {1, 100}, {30, 30}});
  const auto codec = make("powersgd(rank=2)");
  EXPECT_EQ(codec->bound(layout, layout.all()), 4 * (500 + 16 + 100 + 2 * 60));
  const Matrix m = noise(layout, 6), c = sent(*codec, layout, m);
  EXPECT_TRUE(same_bits({m.begin(), m.begin() + 632}, {c.begin(), c.begin() + 632}));
  EXPECT_GT(error(c, m), 0);
  EXPECT_EQ(memory_of(*codec, layout.tensors[0]), 0u);
  EXPECT_EQ(make("powersgd(rank=2, min_rate=8)")->bound(layout, layout.all()), 4 * (500 + 16 + 100 + 900));  // 900 / 120 is 7.5
  Layout part = layout;
  part.tensors[3].shape = {};  // of a larger tensor
  EXPECT_EQ(codec->bound(part, part.all()), 4 * (500 + 16 + 100 + 900));
}

TEST(PowerSgd, RefusesAPayloadOfAnotherLength) {
  const Layout layout = matrices({{30, 30}});
  const auto codec = make("powersgd");
  EXPECT_THAT(failure_of([&] { absorbed(*codec, layout, {Buffer(100)}, layout.all()); }).what, HasSubstr("100 bytes, not 480"));
  EXPECT_EQ(failure_of([] { make("powersgd(rank=0)"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::codec
