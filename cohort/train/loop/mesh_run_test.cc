// Whole runs on meshes of ranks as threads: equal to one rank, and each goes on from what any other saved.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/collective/ranks.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::mesh_run_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kSamples = 30, kGlobalBatch = 8;  // the last step of an epoch is short

using Tensors = std::map<std::string, std::vector<float>>;

struct MeshRun : testing::Test {
  TempDir dir;
  TrainConfig config;

  MeshRun() {
    std::string text;
    for (int i = 0; i < kSamples; ++i) text += fmt::format("{},{},{},{},{}\n", i % 2, 9 * i % 256, 40 + i, 200 - i, i);
    write_file_atomically(dir.file("train.csv"), text);
    config.model = "tp_mlp(in=4, hidden=8, out=2)";
    config.data.train = fmt::format("csv(file={}, shape=1x2x2, classes=2)", dir.file("train.csv"));
    config.data.test = config.data.train;
    config.epochs = 0;
    config.steps = 1;
    config.optim.schedule = "constant";
    config.optim.frozen = {"fc1.bias"};
    config.optimizer = "adamw(lr=0.01)";
    config.engine.clip_norm = 0.5;
    config.check_replicas = 1;
    config.checkpoint.keep = 10;
    config.observe.tensorboard = config.observe.report = false;
    config.threads = 1;
  }

  struct Run {
    int ranks = 1;
    std::string mesh, sync = "all_reduce(op=sum)";
  };
  struct Outcome {
    std::vector<std::string> failures;  // by rank
    Evaluation test;
    std::vector<double> losses;
  };

  // The run in folder `out` up to so many steps.
  Outcome train(const std::string& out, std::int64_t steps, const Run& run, const std::function<void(TrainLoop&, int)>& after_step = {}) {
    TrainConfig mine = config;
    mine.out = dir.file(out);
    mine.steps = steps;
    mine.mesh = run.mesh;
    mine.sync = run.sync;
    mine.data.batch = kGlobalBatch / group::DeviceMesh(run.ranks, run.mesh).size("dp");
    Outcome outcome;
    outcome.failures.resize(static_cast<std::size_t>(run.ranks));
    std::mutex mutex;
    testing::internal::CaptureStdout();
    collective::run_ranks(run.ranks, [&](collective::Communicator& comm) {
      const int rank = comm.rank().value;
      try {
        Trainer trainer(comm, mine, 1, run.ranks);
        trainer.after_step([&](TrainLoop& loop) {
          if (rank == 0) outcome.losses.push_back(loop.last_loss());
          if (after_step) after_step(loop, rank);
        });
        const RunSummary summary = trainer.run();
        const std::lock_guard lock(mutex);
        if (rank == 0) outcome.test = summary.test;
      } catch (const Failure& failure) {
        outcome.failures[static_cast<std::size_t>(rank)] = failure.what();
      }
    });
    testing::internal::GetCapturedStdout();
    return outcome;
  }

  // Everything in the newest checkpoint.
  Tensors saved(const std::string& out) const {
    const checkpoint::Contents contents(checkpoint::open_checkpoint(dir.file(out)));
    Tensors all;
    for (const auto& stored : contents.tensors()) {
      std::vector<float> values(stored.elements());
      contents.read(stored, 0, stored.elements(), std::as_writable_bytes(std::span(values)));
      all[stored.group + ":" + stored.name] = values;
    }
    return all;
  }

  static void expect_near(const Tensors& a, const Tensors& b, double tolerance, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (const auto& [name, values] : b) {
      const auto& others = a.at(name);
      ASSERT_EQ(others.size(), values.size()) << what << " " << name;
      double most = 0, apart = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        most = std::max(most, std::abs(double{values[i]}));
        apart = std::max(apart, std::abs(double{values[i]} - others[i]));
      }
      EXPECT_LE(apart, tolerance * most) << what << " " << name;
    }
  }

  void copy(const std::string& from, const std::string& to) const { fs::copy(dir.file(from), dir.file(to), fs::copy_options::recursive); }
};

const std::vector<MeshRun::Run> kRuns{{4, "dp=2,tp=2"},
                                      {4, "tp=4"},
                                      {4, "dp=4"},
                                      {2, "tp=2"},
                                      {4, "dp=2,tp=2", "zero(stage=1, op=sum)"},
                                      {4, "dp=2,tp=2", "zero(stage=2, op=sum)"},
                                      {4, "dp=2,tp=2", "zero(stage=3, op=sum)"}};
std::string named(const MeshRun::Run& run) { return run.mesh + " " + run.sync; }

TEST_F(MeshRun, TrainsAndEvaluatesAsOneRankDoes) {
  const Outcome one = train("one", 6, {});
  const Tensors reference = saved("one");
  for (std::size_t i = 0; i < kRuns.size(); ++i) {
    const auto out = fmt::format("mesh{}", i);
    const Outcome mesh = train(out, 6, kRuns[i]);
    EXPECT_EQ(mesh.failures, std::vector<std::string>(static_cast<std::size_t>(kRuns[i].ranks))) << named(kRuns[i]);
    expect_near(saved(out), reference, 1e-5, named(kRuns[i]));
    ASSERT_EQ(mesh.losses.size(), one.losses.size());
    for (std::size_t s = 0; s < one.losses.size(); ++s) EXPECT_NEAR(mesh.losses[s], one.losses[s], 1e-5) << named(kRuns[i]);
    EXPECT_NEAR(mesh.test.loss, one.test.loss, 1e-5) << named(kRuns[i]);
    EXPECT_EQ(mesh.test.samples, kSamples) << "every sample counts once";
  }
}

TEST_F(MeshRun, GoesOnFromWhatAnyOtherMeshSaved) {
  train("one", 6, {});
  const Tensors reference = saved("one");
  std::vector<Run> all{{1, ""}};
  all.insert(all.end(), kRuns.begin(), kRuns.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    train(fmt::format("from{}", i), 3, all[i]);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (i != 0 && i != 1 && k > 1 && i != k) continue;  // all from and to one rank and 2 x 2, and each to itself
      const auto out = fmt::format("from{}to{}", i, k);
      copy(fmt::format("from{}", i), out);
      const Outcome went_on = train(out, 6, all[k]);
      const auto what = named(all[i]) + " to " + named(all[k]);
      EXPECT_EQ(went_on.losses.size(), 3u) << what;
      for (const auto& failure : went_on.failures) EXPECT_EQ(failure, "") << what;
      expect_near(saved(out), reference, 1e-5, what);
    }
  }
}

TEST_F(MeshRun, RepeatsBitForBitAlsoAcrossAResume) {
  const Run mesh{4, "dp=2,tp=2"};
  train("a", 6, mesh);
  train("b", 6, mesh);
  train("c", 3, mesh);
  train("c", 6, mesh);
  EXPECT_EQ(saved("a"), saved("b"));
  EXPECT_EQ(saved("a"), saved("c"));
}

// Blocks are computed again in backward, their collectives too, in the same order on every rank.
TEST_F(MeshRun, HasTheSameBitsWithRecomputationAndLanes) {
  const Run mesh{4, "dp=2,tp=2"};
  train("plain", 4, mesh);
  config.recompute = "every(1)";
  config.engine.lanes = 1;
  config.engine.bucket = ByteSize{64};
  train("recomputed", 4, mesh);
  EXPECT_EQ(saved("recomputed"), saved("plain"));
}

TEST_F(MeshRun, WritesBoxesOncePerTpPlaceAndNoEmptyFiles) {
  train("mesh", 2, {4, "dp=2,tp=2"});
  const auto found = checkpoint::open_checkpoint(dir.file("mesh"));
  std::vector<std::string> files;
  for (const auto& file : found.manifest.files) files.push_back(file.name);
  EXPECT_THAT(files, testing::UnorderedElementsAre("model-00000-of-00004.safetensors", "model-00001-of-00004.safetensors",
                                                   "optimizer-00000-of-00004.safetensors", "optimizer-00001-of-00004.safetensors"));
  const checkpoint::Contents contents(found);
  EXPECT_EQ(contents.at("model", "fc1.weight").pieces.size(), 2u);
  EXPECT_EQ(contents.at("model", "fc1.bias").pieces.size(), 2u) << "frozen, and shared out all the same";
  EXPECT_EQ(contents.at("model", "head.weight").pieces[1].name(), "head.weight[0:2, 4:8]");
  EXPECT_EQ(contents.at("model", "head.bias").pieces.size(), 1u);
}

TEST_F(MeshRun, IsPredictedFromAndReshardedLikeAnyOther) {
  train("one", 4, {});
  train("mesh", 4, {4, "dp=2,tp=2", "zero(stage=2, op=sum)"});
  const Score one = Predictor(dir.file("one")).score(config.data.train, 0), mesh = Predictor(dir.file("mesh")).score(config.data.train, 0);
  EXPECT_EQ(mesh.samples, one.samples);
  EXPECT_NEAR(mesh.loss, one.loss, 1e-5);
  const auto from = checkpoint::open_checkpoint(dir.file("mesh"));
  fs::create_directories(dir.file("other/checkpoints"));
  checkpoint::reshard(from, dir.file("other/checkpoints"), {.ranks = 3, .stage = 3});
  EXPECT_EQ(saved("other"), saved("mesh"));
}

TEST_F(MeshRun, ABitThatFlippedInAPartOfATensorIsFoundAndNamesTheRank) {
  const Outcome flipped = train("flipped", 6, {4, "dp=2,tp=2"}, [](TrainLoop& loop, int rank) {
    if (rank != 3 || loop.step() != 2) return;
    const torch::NoGradGuard no_grad;
    loop.model().named_parameters()[0].second.add_(1e-3);
  });
  for (const auto& failure : flipped.failures)
    EXPECT_THAT(failure, AllOf(HasSubstr("'fc1.weight' is the first that differs"), HasSubstr("on rank 1"), HasSubstr("on rank 3")));
}

TEST_F(MeshRun, RefusesAModelThatCannotBeSharedOutAndAMeshThatDoesNotFit) {
  config.model = "mlp(in=4, hidden=8, out=2)";
  EXPECT_THAT(train("bad", 2, {4, "dp=2,tp=2"}).failures[0],
              HasSubstr("model 'mlp(in=4, hidden=8, out=2)' has no layer that tp ranks can share"));
  config.model = "tp_mlp(in=4, hidden=6, out=2)";
  EXPECT_THAT(train("bad", 2, {4, "tp=4"}).failures[0], HasSubstr("fc1.weight of [6, 4] cannot be cut into 4"));
  config.mesh = "dp=2,tp=2";
  config.out = dir.file("bad");
  collective::run_ranks(3, [&](collective::Communicator& comm) {
    const Error error = failure_of([&] { Trainer(comm, config, 1, 3); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, AnyOf(HasSubstr("mesh 'dp=2,tp=2' is of 4 ranks, and the job has 3"), HasSubstr("rank 0, which reports")));
  });
  EXPECT_FALSE(fs::exists(dir.file("bad"))) << "settings that are refused leave nothing behind";
}

TEST_F(MeshRun, RefusesSettingsThatDoNotGoWithLayersThatRanksShare) {
  const auto refused = [&](auto change) {
    TrainConfig other = config;
    other.mesh = "dp=2,tp=2";
    change(other);
    return failure_of([&] {
             check(other);
             check_elastic(other);
           })
        .what;
  };
  EXPECT_THAT(refused([](TrainConfig& c) { c.mesh = "dp=2,pp=2"; }), HasSubstr("models are trained over dp and tp"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.sync = "zero(stage=1, buddy=true)"; }), HasSubstr("does not go with buddy=true"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.observe.plan = true; }), HasSubstr("does not go with observe.plan"));
  EXPECT_THAT(refused([](TrainConfig& c) {
                c.device = "cuda";
                c.sync = "zero(stage=2, offload=host)";
              }),
              HasSubstr("does not go with device=cuda"));
  EXPECT_THAT(refused([](TrainConfig&) {}), HasSubstr("an elastic job (--min-n) cannot have mesh=dp=2,tp=2"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.mesh = "dp=2"; }), HasSubstr("its number of ranks changes"));
  config.mesh = "dp";
  config.sync = "zero(stage=1, buddy=true)";
  check(config);  // dp alone is no mesh to speak of
  check_elastic(config);
}

}  // namespace
}  // namespace cohort::train::mesh_run_test
