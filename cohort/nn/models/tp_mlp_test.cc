#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/nn/models/testing.h"
#include "cohort/nn/parallel/linear.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTpMlp = "tp_mlp(in=20, hidden=16, out=5)";

TEST(TpMlp, IsTheMlpOfOneHiddenLayerBitForBit) {
  const Model ours = make_model(kTpMlp, kTestSeed), plain = make_model("mlp(in=20, hidden=16, out=5)", kTestSeed);
  const auto a = ours.named_parameters(), b = plain.named_parameters();
  ASSERT_EQ(names_of(a), names_of(b));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << a[i].first;
  EXPECT_TRUE(at::equal(ours.forward(ours.example(3)), plain.forward(plain.example(3))));
}

TEST(TpMlp, Learns) { expect_learns(kTpMlp, 8, 0.01); }
TEST(TpMlp, Repeats) { expect_repeats(kTpMlp); }

TEST(TpMlp, IsCutIntoBoxesThatAreTheWholeModelTogether) {
  collective::run_ranks(4, [](collective::Communicator& comm) {
    Model model = make_model(kTpMlp, kTestSeed);
    const auto whole = make_model(kTpMlp, kTestSeed).named_parameters();
    const auto specs = shard_linears(model.root(), comm);
    EXPECT_EQ(specs.size(), 3u) << "the bias of the second layer is whole";
    const auto r = comm.rank().value;
    EXPECT_EQ(specs.at("fc1.weight").box, (Box{{4 * r, 0}, {4, 20}}));
    EXPECT_EQ(specs.at("fc1.bias").box, (Box{{4 * r}, {4}}));
    EXPECT_EQ(specs.at("head.weight").box, (Box{{0, 4 * r}, {5, 4}}));
    const auto parts = model.named_parameters();
    EXPECT_TRUE(at::equal(parts[0].second, whole[0].second.narrow(0, 4 * r, 4)));
    EXPECT_TRUE(at::equal(parts[2].second, whole[2].second.narrow(1, 4 * r, 4)));
  });
}

TEST(TpMlp, RefusesAWidthThatTheRanksCannotShareEvenly) {
  collective::run_ranks(3, [](collective::Communicator& comm) {
    Model model = make_model(kTpMlp, kTestSeed);
    const Error error = failure_of([&] { shard_linears(model.root(), comm); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("fc1.weight of [16, 20] cannot be cut into 3 equal parts"));
  });
}

}  // namespace
}  // namespace cohort::nn
