#include "cohort/train/loop/checkpoint_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// Rank 0, alone, of an elastic job in its n-th membership epoch.
struct ElasticRank : testing::Test {
  TempDir dir;
  TrainConfig config;
  RankStatus status;
  std::unique_ptr<collective::Communicator> comm;
  std::unique_ptr<TrainLoop> loop;

  ElasticRank() {
    config.model = "mlp(in=784, hidden=8, out=10)";
    config.data.train = "synthetic(samples=80)";
    config.data.test = "";
    config.data.batch = 16;
    config.threads = 1;
    config.out = dir.file("run");
    std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
    comm = collective::open(std::move(alone), {});
    loop = std::make_unique<TrainLoop>(*comm, config, 1, 1, status);
    loop->train_step();
  }
  std::string checkpoints() const { return config.out + "/checkpoints"; }
  std::unique_ptr<CheckpointManager> begin(std::uint32_t epoch) {
    return std::make_unique<CheckpointManager>(*comm, *loop, config, "settings: all\n", checkpoint::Fence{"job.1", epoch});
  }
  // Whether it is on disk; and what the log said.
  static std::pair<bool, std::string> save(CheckpointManager& manager) {
    testing::internal::CaptureStderr();
    manager.save();
    manager.finish();
    return {manager.saved(), testing::internal::GetCapturedStderr()};
  }
};

TEST_F(ElasticRank, ThatComesWhileTheJobTrainsGoesOnWithoutAFolderAndMakesItWithTheNextCheckpoint) {
  begin(1);
  for (const bool whole_run : {false, true}) {
    const std::string path = whole_run ? config.out : checkpoints();
    fs::remove_all(path);
    write_file_atomically(path, "a file in place of the folder");
    testing::internal::CaptureStderr();
    const auto manager = begin(2);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("; training goes on, and the next checkpoint tries again"));
    EXPECT_TRUE(manager->may_write()) << "it has not lost the folder to another run";
    const auto [saved, said] = save(*manager);
    EXPECT_FALSE(saved);
    EXPECT_THAT(said, HasSubstr(path));
    EXPECT_THAT(manager->lost_text(), HasSubstr("there is no checkpoint"));
    fs::remove(path);
    EXPECT_TRUE(save(*manager).first);
    EXPECT_EQ(checkpoint::Store(checkpoints()).newest().checkpoint->manifest.step, 1);
  }
}

TEST_F(ElasticRank, ThatBeginsTheJobIsRefusedAFolderItCannotMake) {
  fs::create_directories(config.out);
  write_file_atomically(checkpoints(), "a file in place of the folder");
  EXPECT_THAT(failure_of([&] { begin(1); }).what, HasSubstr(checkpoints() + " is no folder"));
}

TEST_F(ElasticRank, IsRefusedTheFolderOfAnotherRunAtOnceAndWithTheNextCheckpoint) {
  fs::create_directories(config.out);
  auto other = std::make_unique<checkpoint::RunLock>(config.out, checkpoint::this_process("other"));
  EXPECT_EQ(failure_of([&] { begin(2); }).kind, Kind::usage);
  other.reset();
  fs::remove_all(config.out);
  write_file_atomically(config.out, "a file in place of the folder");
  const auto manager = begin(2);
  fs::remove(config.out);
  fs::create_directories(config.out);
  other = std::make_unique<checkpoint::RunLock>(config.out, checkpoint::this_process("other"));
  EXPECT_THAT(save(*manager).second, HasSubstr("was taken over by process"));
  EXPECT_TRUE(manager->taken_over());
  EXPECT_FALSE(fs::exists(checkpoints()));
}

TEST_F(ElasticRank, LeavesTheFolderToTheNextOneAndGivesItFreeWhenTheJobEnds) {
  const std::string owner = config.out + "/.owner";
  auto manager = begin(1);
  manager.reset();
  EXPECT_TRUE(fs::exists(owner)) << "without an owner another job could take the folder before the next rank 0 does";
  EXPECT_EQ(failure_of([&] { checkpoint::RunLock(config.out, checkpoint::this_process("other")); }).kind, Kind::usage);
  manager = begin(2);
  manager->job_ends();
  manager.reset();
  EXPECT_FALSE(fs::exists(owner));
}

// No file of this process may grow, as on a full disk.
struct NoRoom {
  NoRoom() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit none{0, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoom() { ::setrlimit(RLIMIT_FSIZE, &before); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
  rlimit before{};
};

TEST_F(ElasticRank, ThatBeginsFromAnEmptyFolderOnAFullDiskSavesWhenItsFenceIsRaised) {
  begin(1);
  fs::remove_all(checkpoints());
  std::unique_ptr<CheckpointManager> manager;
  {
    const NoRoom full;
    manager = begin(2);
    EXPECT_EQ(manager->restore(), std::nullopt);
    manager->save();
    manager->finish();
    EXPECT_FALSE(manager->saved());
  }
  EXPECT_NE(checkpoint::raised_fence(checkpoints()), (checkpoint::Fence{"job.1", 2}));
  EXPECT_TRUE(save(*manager).first);
  EXPECT_EQ(checkpoint::raised_fence(checkpoints()), (checkpoint::Fence{"job.1", 2}));
}

TEST_F(ElasticRank, WhoseFolderCannotBeWrittenTellsOnceWhyHoweverOftenItTries) {
  config.checkpoint.last_try = Seconds{1};
  const auto manager = begin(1);
  EXPECT_EQ(manager->restore(), std::nullopt);
  fs::remove_all(checkpoints());
  write_file_atomically(checkpoints(), "a file in place of the folder");
  const auto [saved, first] = save(*manager);
  loop->train_step();
  testing::internal::CaptureStderr();
  EXPECT_FALSE(manager->save_last() || saved);
  const std::string said = first + testing::internal::GetCapturedStderr();
  const auto times = [&](const std::string& words) {
    int found = 0;
    for (auto at = said.find(words); at != std::string::npos; at = said.find(words, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(times("checkpoint of step 1 in "), 1) << said;
  EXPECT_EQ(times("checkpoint of step 2 in "), 1) << said;
  EXPECT_EQ(times("training goes on"), 1) << "not after the last step: " << said;
}

}  // namespace
}  // namespace cohort::train
