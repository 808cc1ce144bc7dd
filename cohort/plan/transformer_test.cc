#include "cohort/plan/transformer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cohort::plan {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(Transformer, TheTenParameterCountsOfMegatron) {
  struct Known {
    double hidden, layers, billions;
  };
  const Known table[] = {{2304, 24, 1.7},   {3072, 30, 3.6},    {4096, 36, 7.5},    {6144, 40, 18.4},    {8192, 48, 39.1},
                         {10240, 60, 76.1}, {12288, 80, 145.6}, {16384, 96, 310.1}, {20480, 105, 529.6}, {25600, 128, 1008.0}};
  for (const Known& k : table) {
    const double p = transformer_parameters({.layers = k.layers, .hidden = k.hidden, .sequence = 2048, .vocabulary = 51200});
    EXPECT_NEAR(std::round(p / 1e8) / 10, k.billions, 1e-9) << "h " << k.hidden;
  }
}

// GiB a layer, t = 8, s = 2048: none, TP, TP + SP, TP + SP + selective, full.
struct Known {
  double heads, hidden, batch, none, tp, tp_sp, selective, full;
};

TEST(Transformer, ActivationsOfKorthikantiTable2) {
  const Known table[] = {{64, 6144, 4, 6.59, 1.234, .824, .199, .094},
                         {96, 12288, 1, 2.67, .539, .334, .100, .047},
                         {128, 20480, 1, 3.83, .820, .479, .166, .078},
                         {160, 25600, 1, 4.79, 1.025, .598, .208, .098}};
  const ModelParallelism alone{}, tp{8, false}, tp_sp{8, true};
  for (const Known& k : table) {
    const TransformerShape m{.hidden = k.hidden, .heads = k.heads, .sequence = 2048, .batch = k.batch};
    EXPECT_NEAR(activation_bytes(m, alone, SavedActivations::everything) / kGiB, k.none, 0.005);
    EXPECT_NEAR(activation_bytes(m, tp, SavedActivations::everything) / kGiB, k.tp, 0.0005);
    EXPECT_NEAR(activation_bytes(m, tp_sp, SavedActivations::everything) / kGiB, k.tp_sp, 0.0005);
    EXPECT_NEAR(activation_bytes(m, tp_sp, SavedActivations::all_but_attention) / kGiB, k.selective, 0.0005);
    EXPECT_NEAR(activation_bytes(m, tp_sp, SavedActivations::inputs) / kGiB, k.full, 0.0005);
  }
}

TEST(Transformer, ActivationFormulasAgreeWithEachOther) {
  const TransformerShape m{.hidden = 1024, .heads = 16, .sequence = 512, .batch = 2};
  const double sbh = 512.0 * 2 * 1024;
  EXPECT_DOUBLE_EQ(activation_bytes(m, {}, SavedActivations::everything), sbh * (34 + 5 * 16 * 512 / 1024.0));
  EXPECT_DOUBLE_EQ(activation_bytes(m, {4, false}, SavedActivations::all_but_attention), sbh * (10 + 24 / 4.0));
  EXPECT_DOUBLE_EQ(activation_bytes(m, {4, true}, SavedActivations::all_but_attention), 34 * sbh / 4);
  EXPECT_DOUBLE_EQ(activation_bytes(m, {1, true}, SavedActivations::everything),
                   activation_bytes(m, {1, false}, SavedActivations::everything));
}

TEST(Transformer, SelectiveRecomputationSaves70And65Percent) {
  const auto saved = [](double heads, double hidden) {
    const TransformerShape m{.hidden = hidden, .heads = heads, .sequence = 2048};
    const ModelParallelism tp_sp{8, true};
    return 1 - activation_bytes(m, tp_sp, SavedActivations::all_but_attention) / activation_bytes(m, tp_sp, SavedActivations::everything);
  };
  EXPECT_NEAR(saved(96, 12288), 0.70, 0.005);
  EXPECT_NEAR(saved(128, 20480), 0.65, 0.005);
}

TEST(Transformer, FlopsAreSixPerParameterAndTokenAndEightWithRecomputation) {
  const TransformerShape m{.layers = 96, .hidden = 12288, .sequence = 2048, .vocabulary = 51200, .batch = 1};
  const double tokens = m.batch * m.sequence;
  EXPECT_NEAR(transformer_flops(m, false) / (6 * tokens * transformer_parameters(m)), 1, 0.03);  // attention is what is over
  EXPECT_DOUBLE_EQ(transformer_flops(m, true) / transformer_flops(m, false), 96.0 / 72);
}

TEST(Transformer, DaysOfTrainingAsPublished) {
  EXPECT_NEAR(training_days(175e9, 300e9, 1024, 140e12), 33.9, 0.05);
  EXPECT_NEAR(training_days(1.008e12, 450e9, 3072, 163e12), 83.9, 0.05);
}

}  // namespace
}  // namespace cohort::plan
