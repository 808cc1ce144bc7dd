// dp x tp: what 4 ranks compute is what one would with the whole batch.
#include "cohort/base/slowdown.h"
#include "cohort/engine/mesh_testing.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

struct Shape2 {
  int ranks;
  const char* mesh;
};
constexpr Shape2 kMeshes[] = {{4, "dp=2,tp=2"}, {4, "tp=2,dp=2"}, {4, "dp=1,tp=4"}, {4, "dp=4,tp=1"}, {2, "tp=2"}, {6, "dp=3,tp=2"}};

TEST(Mesh, EqualsOneRankWithTheWholeBatch) {
  for (const char* rule : {"sgd(lr=0.1, momentum=0.9)", "adamw(lr=0.01)", "lamb(lr=0.01)"})
    for (const char* sync : {"all_reduce(op=sum)", "all_reduce(op=average)"}) {
      MeshCase c{.rule = rule, .rows = 12};
      c.options.strategy = sync;
      c.options.clip_norm = 0.05;
      const MeshResult one = train_on_mesh(c);
      EXPECT_LT(one.verdicts[0].clip, 1) << "clipping must happen, or it is not tested";
      for (const auto& [ranks, mesh] : kMeshes) {
        c.ranks = ranks;
        c.mesh = mesh;
        expect_near(train_on_mesh(c), one, 1e-12, fmt::format("{} {} {}", rule, sync, mesh));
      }
    }
}

TEST(Mesh, EqualsOneRankInSinglePrecisionToItsRounding) {
  MeshCase c{.type = at::kFloat, .steps = 2};
  const MeshResult one = train_on_mesh(c);
  c.ranks = 4;
  c.mesh = "dp=2,tp=2";
  expect_near(train_on_mesh(c), one, 1e-5, c.mesh);
}

TEST(Mesh, HasTheSameBitsRunAfterRunAndForAnyBucketsAndLanes) {
  MeshCase c{.ranks = 4, .mesh = "dp=2,tp=2", .rule = "adamw(lr=0.01)", .type = at::kFloat};
  c.options.clip_norm = 0.05;
  c.options.norms = true;
  const MeshResult first = train_on_mesh(c);
  for (const int lanes : {0, 1, 2})
    for (const std::size_t bucket : {std::size_t{1}, std::size_t{300}, std::size_t{0}}) {
      c.options.lanes = lanes;
      c.options.bucket = c.options.first_bucket = ByteSize{bucket};
      expect_same_bits(train_on_mesh(c), first, fmt::format("{} lanes, {} bytes", lanes, bucket));
    }
}

TEST(Mesh, NormsOfADpPlacesOwnGradientAreThoseOfThatRankWithoutTp) {
  MeshCase c{.ranks = 2, .mesh = "dp=2"};
  c.options.norms = true;
  const MeshResult plain = train_on_mesh(c);
  c.ranks = 4;
  c.mesh = "dp=2,tp=2";
  const MeshResult mesh = train_on_mesh(c);
  for (std::size_t s = 0; s < plain.verdicts.size(); ++s)
    EXPECT_NEAR(mesh.verdicts[s].squared_before, plain.verdicts[s].squared_before, 1e-12 * plain.verdicts[s].squared_before);
}

TEST(Mesh, ZeroAlongDpChangesNoBit) {
  for (const char* rule : {"adamw(lr=0.01)", "lamb(lr=0.01)"})
    for (const int lanes : {0, 1}) {
      MeshCase c{.ranks = 4, .mesh = "dp=2,tp=2", .model = "tp_mlp(in=40, hidden=64, out=3)", .rule = rule, .type = at::kFloat};
      c.options.clip_norm = 0.05;
      c.options.lanes = lanes;
      c.options.bucket = ByteSize{3000};
      const MeshResult whole = train_on_mesh(c);
      for (const int stage : {1, 2, 3}) {
        c.options.strategy = fmt::format("zero(stage={}, op=sum)", stage);
        expect_same_bits(train_on_mesh(c), whole, fmt::format("{} {} {} lanes", c.options.strategy, rule, lanes));
      }
    }
}

TEST(Mesh, AGradientThatIsNotFiniteOnOneRankSkipsTheStepOnAll) {
  MeshCase c{.ranks = 4, .mesh = "dp=2,tp=2", .steps = 2};
  c.before_finish = [](const CallbackContext& context) {
    if (context.step == 1 && context.comm.rank() == Rank{3}) context.model.named_parameters()[0].second.mutable_grad().fill_(INFINITY);
  };
  const MeshResult skipped = train_on_mesh(c);
  EXPECT_FALSE(skipped.verdicts[0].committed);
  EXPECT_TRUE(skipped.verdicts[1].committed);
}

// Each tp rank has a part of the gradient of `w`, as a norm between two regions that share the sequence has; `v` is the same on both.
TEST(Mesh, AGradientInPartsIsSummedOverTpAndAveragedOverDp) {
  for (const char* sync : {"all_reduce(op=average)", "all_reduce(op=sum)", "zero(stage=1, op=average)", "zero(stage=2, op=average)"})
    collective::run_ranks(4, [&](collective::Communicator& comm) {
      const group::DeviceMesh mesh(4, "dp=2,tp=2");
      const at::Tensor w = at::zeros({3}).requires_grad_(true), v = at::zeros({2}).requires_grad_(true),
                       own = at::zeros({1}).requires_grad_(true);
      const double dp = mesh.coordinate(comm.rank(), "dp"), tp = mesh.coordinate(comm.rank(), "tp");
      Engine engine(comm,
                    {{.name = "w", .tensor = w, .over = {"dp", "tp"}},
                     {.name = "v", .tensor = v},
                     {.name = "own", .tensor = own, .cut = {"dp", "tp"}, .over = {}}},
                    {.strategy = sync, .mesh = "dp=2,tp=2", .lanes = 0}, optim::make("sgd(lr=1)"));
      engine.begin({.step = 1, .lr = 1});
      const double part = 1 + 2 * dp + 4 * tp, same = 10 + dp, alone = comm.rank().value + 1;
      (w.sum() * part + v.sum() * same + own.sum() * alone).backward();
      const Verdict verdict = engine.finish();
      const double dps = engine.averages() ? 2 : 1;
      EXPECT_EQ(-w[0].item<double>() * dps, 1 + 3 + 5 + 7) << sync;
      EXPECT_EQ(-v[0].item<double>() * dps, 10 + 11) << sync;
      EXPECT_EQ(-own[0].item<double>() * dps, alone) << sync;
      const double squares = 3 * 16 * 16 + 2 * 21 * 21 + 1 + 4 + 9 + 16;
      EXPECT_EQ(verdict.squared_after * dps * dps, squares) << sync << ": every element once";
    });
}

TEST(Mesh, AParameterWithoutAGradientAnywhereIsLeftAlone) {
  collective::run_ranks(4, [](collective::Communicator& comm) {
    const at::Tensor used = at::ones({2}).requires_grad_(true), nowhere = at::ones({2}).requires_grad_(true),
                     somewhere = at::ones({2}).requires_grad_(true);
    Engine engine(comm,
                  {{.name = "u", .tensor = used, .group = {.weight_decay = 0.5}},
                   {.name = "n", .tensor = nowhere, .group = {.weight_decay = 0.5}},
                   {.name = "s",
                    .tensor = somewhere,
                    .group = {.weight_decay = 0.5},
                    .shard = cut_evenly("s", {4}, 0, comm.rank().value % 2, 2),
                    .cut = {"tp"}}},
                  {.strategy = "all_reduce(op=sum)", .mesh = "dp=2,tp=2", .lanes = 0}, optim::make("sgd(lr=1)"));
    engine.begin({.step = 1, .lr = 1});
    (comm.rank().value < 2 ? used.sum() + somewhere.sum() : used.sum()).backward();
    engine.finish();
    EXPECT_EQ(nowhere[0].item<float>(), 1) << "not even decayed";
    EXPECT_EQ(used[0].item<float>(), 1 - 2 - 0.5F);
    EXPECT_EQ(somewhere[0].item<float>(), 1 - 1 - 0.5F);
  });
}

TEST(MeshSpans, HoldersDifferAlongNoneOfTheAxes) {
  for (Rank me{0}; me.value < 24; ++me.value) {
    MeshSpans spans(24, "dp=3,ep=2,tp=4", me);
    for (const MeshAxes& differing : {MeshAxes{}, {"dp"}, {"tp"}, {"dp", "tp"}, {"ep"}, {"tp", "ep", "dp"}, {"pp"}}) {
      const auto groups = spans.mesh().span(spans.mesh().others(differing));
      EXPECT_EQ(spans.holders(differing).count, groups.size());
      EXPECT_EQ(spans.holders(differing).me, groups.place_of(me));
    }
    EXPECT_EQ(spans.number_of({"tp", "dp"}), 1) << "0 is dp";
    EXPECT_EQ(spans.number_of({"dp", "tp", "pp"}), 1) << "an axis of one rank makes no difference, nor does the order";
    EXPECT_EQ(spans.ranks(1), 12);
    EXPECT_EQ(spans.mean_of(), 3);
  }
}

struct RankDies {};

TEST(Mesh, ALostRankIsNamedOnAllOthersAlsoThoseThatShareNoAxisWithIt) {
  at::set_num_threads(1);
  for (const int lanes : {0, 1})
    collective::run_ranks(4, [&](collective::Communicator& comm) {
      MeshCase c{.ranks = 4, .mesh = "dp=2,tp=2"};
      c.options.lanes = lanes;
      MeshRank rank(c, comm);
      try {
        for (int step = 1; step <= 3; ++step) {
          if (step == 2 && comm.rank() == Rank{3}) throw RankDies{};
          rank.engine->begin({.step = step, .lr = 0.1});
          loss_of_rows(rank.model, c.type, step, 8, 4 * rank.mesh.coordinate(comm.rank(), "dp"), 4).backward();
          rank.engine->finish();
        }
        ADD_FAILURE() << "rank " << comm.rank().value << " noticed nothing";
      } catch (const RankDies&) {
      } catch (const Failure& failure) {
        EXPECT_TRUE(failure.kind() == Kind::peer_lost || failure.kind() == Kind::aborted) << failure.what();
        EXPECT_THAT(failure.what(), HasSubstr("rank 3"));
      }
    });
}

TEST(Mesh, RefusesWhatItCannotDo) {
  const auto refused = [](MeshCase c) {
    std::string what;
    std::mutex mutex;
    collective::run_ranks(4, [&](collective::Communicator& comm) {
      const Error error = failure_of([&] { MeshRank(c, comm); });
      EXPECT_EQ(error.kind, Kind::usage) << error.what;
      const std::lock_guard lock(mutex);
      what = error.what;
    });
    return what;
  };
  MeshCase c{.ranks = 4, .mesh = "dp=2,tp=2"};
  c.options.strategy = "local_sgd(h=4)";
  EXPECT_THAT(refused(c), HasSubstr("mesh=dp=2,tp=2 does not go with sync=local_sgd(h=4): replicas that drift"));
  c.options.strategy = "zero(stage=1, buddy=true)";
  EXPECT_THAT(refused(c), HasSubstr("leave buddy=true out"));
  for (const char* rule : {"muon", "adafactor"})
    EXPECT_THAT(refused({.ranks = 4, .mesh = "dp=2,tp=2", .rule = rule}), HasSubstr("the rule computes with whole tensors"));
  EXPECT_THAT(refused({.ranks = 4, .mesh = "dp=2,tp=3"}), HasSubstr("is of 6 ranks, and the job has 4"));
}

}  // namespace
}  // namespace cohort::engine
