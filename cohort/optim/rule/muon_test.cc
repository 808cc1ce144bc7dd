#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/rule/whole_testing.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;

// The figures are those of torch.optim.Muon (2.13) on the tensors of whole_testing.h, in double: with Tensor.bfloat16 replaced by clone.
TEST(Muon, GivesWhatTorchGives) {
  const auto wide = five_steps("muon", {3, 4}, 0.02, 0.1);
  expect_near(wide.w, {-0.23553922334664079, 0.6245948657050624, 0.146512841980841, -0.36264049298451956, 0.5266121693714737,
                       0.0016607702698360337, -0.47639393502582794, 0.33613760890606909, -0.10420843973340173, -0.66545657980764172,
                       0.26129927428521815, -0.26928584527893656});
  expect_near(wide.s[0], {0.0061374414062500071, 0.0015730859375000003, 0.004346367187500008, -0.0041789257812500074,
                          -0.0049803906250000043, -0.0080012500000000066, -0.012565605468750012, 0.023296992187500015,
                          -0.018317617187500017, 0.015711777343750011, -0.02213994140625002, 0.0099597656250000055});
  const auto high = five_steps("muon(nesterov=false, momentum=0.8)", {4, 3}, 0.02, 0);
  expect_near(high.w, {-0.25981206697817316, 0.61802955196617482, 0.16477793842603194, -0.37003766719519832, 0.54380077752239797,
                       0.025333989112240541, -0.49153469553319168, 0.35613361737174898, -0.10626468960785851, -0.67609484711170831,
                       0.28066881315797548, -0.26625461456101396});
  const auto matched = five_steps("muon(adjust_lr_fn=match_rms_adamw, ns_steps=3)", {2, 5}, 0.02, 0);
  expect_near(matched.w, {-0.25426983345309606, 0.60975198385863771, 0.13980681875818141, -0.37812744019589645, 0.50994947233530374,
                          0.011693520717240244, -0.49130024803118599, 0.3601411386541562, -0.11902477985666758, -0.6458148190456624});
}

TEST(Muon, AFilterIsAMatrixWithARowForEachOutput) {
  EXPECT_EQ(five_steps("muon", {4, 3, 2, 2}, 0.02, 0.1).w, five_steps("muon", {4, 12}, 0.02, 0.1).w);
}

// x x^T of the step, whose eigenvalues are squares of singular values.
std::vector<double> gram(const std::vector<double>& x, std::size_t rows, std::size_t columns) {
  std::vector<double> a(rows * rows);
  Algebra{}.multiply<double>(1, {x.data(), rows, columns}, Matrix(x.data(), rows, columns).transposed(), 0, {a.data(), rows, rows});
  return a;
}

TEST(Muon, AStepIsNearlyOrthogonalAndTheSameForAnyScaleOfTheLoss) {
  const auto rule = make("muon");
  Field<double> field(*rule, TensorInfo{"m", {24, 80}, Dtype::f64});
  std::mt19937 random(8);
  fill_normal(field.g, random);
  Field<double> loud = field;
  for (double& g : loud.g) g *= 1e5;
  field.update(*rule, {.step = 1, .lr = 1});
  loud.update(*rule, {.step = 1, .lr = 1});
  for (std::size_t i = 0; i < field.w.size(); ++i) EXPECT_NEAR(field.w[i], loud.w[i], 1e-9);
  const auto a = gram(field.w, 24, 80);
  double trace = 0, squares = 0;
  for (std::size_t i = 0; i < 24; ++i) trace += a[i * 24 + i] / 24;
  for (std::size_t i = 0; i < a.size(); ++i) squares += a[i] * a[i] / 24;
  EXPECT_GT(trace, 0.68 * 0.68);
  EXPECT_LT(trace, 1.13 * 1.13);
  EXPECT_LT(std::sqrt(squares - trace * trace), 0.3) << "singular values lie close together";
}

// The same numbers as adamw of the same parameters, and its state.
TEST(Muon, VectorsEmbeddingsAndHeadsAreUpdatedByAdamw) {
  const auto muon = make("muon(lr=0.02)"), adamw = make("adamw(beta2=0.95, eps=1e-10)");
  for (const auto& tensor :
       {TensorInfo{"fc.bias", {60}}, TensorInfo{"wte.weight", {6, 10}}, TensorInfo{"net.head.weight", {6, 10}}, TensorInfo{"scale", {}}}) {
    Field<float> one(*muon, tensor, 1), other(*adamw, tensor, 1);
    std::mt19937 random(1);
    for (std::int64_t t = 1; t <= 3; ++t) {
      fill_normal(one.g, random);
      other.g = one.g;
      one.update(*muon, {.step = t, .lr = 0.01}, {.weight_decay = 0.1});           // half the schedule's rate ..
      other.update(*adamw, {.step = t, .lr = 0.5 * 3e-4}, {.weight_decay = 0.1});  // .. is half of adamw's own
    }
    EXPECT_TRUE(one.same_bits(other)) << tensor.name;
  }
  EXPECT_EQ(make("muon")->state({"fc.weight", {6, 10}}).size(), 1u);
  EXPECT_EQ(make("muon(adamw=\"fc.* x\")")->state({"fc.weight", {6, 10}}).size(), 2u);
  EXPECT_EQ(make("muon(adamw=\"\")")->state({"wte.weight", {6, 10}})[0].name, "momentum_buffer");
}

TEST(Muon, AMatrixOfZerosIsLeftWhereItIs) {
  const auto rule = make("muon");
  Field<float> field(*rule, TensorInfo{"m", {3, 5}}, 2);
  field.update(*rule, {.step = 1, .lr = 1});
  EXPECT_THAT(field.w, testing::Each(2));
}

TEST(Muon, RefusesWhatCannotBeMeant) {
  EXPECT_EQ(failure_of([] { make("muon(ns_steps=100)"); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { make("muon(adjust_lr_fn=other)"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::optim
