#include "cohort/checkpoint/sharded_save.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/checkpoint/sharded_samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::size_t entries(const std::string& folder) { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }

struct Job {
  explicit Job(int ranks, std::int64_t step = 2) : files(dealt(model, optimizer, ranks, 1)), manifest(SampleCheckpoint(step).manifest) {}
  SampleTensors model = awkward_model(), optimizer = awkward_optimizer();
  std::vector<std::vector<TensorFile>> files;
  Manifest manifest;
};

TEST(ShardedSave, LeavesOneFolderAndNothingElse) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(4);
  EXPECT_THAT(save_sharded_on_threads(store, job.manifest, job.files), Each("saved"));
  EXPECT_EQ(entries(folder.path()), 1U);
  EXPECT_EQ(entries(folder.file("step-00000002")), 9U) << "two files a rank and the manifest, no parts";
  EXPECT_EQ(store.newest().checkpoint->manifest.step, 2);
}

TEST(ShardedSave, AStepSavedAgainReplacesTheOldOneForAll) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(3);
  save_sharded_on_threads(store, job.manifest, job.files);
  job.manifest.texts["config"] = "new";
  EXPECT_THAT(save_sharded_on_threads(store, job.manifest, job.files), Each("saved"));
  EXPECT_EQ(store.newest().checkpoint->manifest.texts.at("config"), "new");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(ShardedSave, ARankWithoutShardsTakesPart) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(2);
  job.files.emplace_back();
  EXPECT_THAT(save_sharded_on_threads(store, job.manifest, job.files), Each("saved"));
  EXPECT_TRUE(holds(Contents(*store.newest().checkpoint), "model", job.model));
}

TEST(ShardedSave, ARankThatFailsCallsTheSaveOffForAllAndOlderOnesStay) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job before(3, 1), job(3, 2);
  save_sharded_on_threads(store, before.manifest, before.files);
  job.files[1][0].tensors[0].shape = {1, 2, 3};  // cannot be written: its bytes are others
  const auto outcomes = save_sharded_on_threads(store, job.manifest, job.files);
  EXPECT_THAT(outcomes[0], AllOf(HasSubstr("rank 1 could not write its part"), HasSubstr("the newest there is step 1")));
  EXPECT_THAT(outcomes[1], AllOf(HasSubstr("the part of rank 1 was not written"), HasSubstr("cannot be written")));
  EXPECT_THAT(outcomes[2], HasSubstr("called off"));
  EXPECT_EQ(entries(folder.path()), 1U);
  EXPECT_EQ(store.newest().checkpoint->manifest.step, 1);
}

TEST(ShardedSave, WhenRankZeroFailsTheOthersAreTold) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(3);
  job.files[0][0].tensors[0].shape = {1, 2, 3};
  const auto outcomes = save_sharded_on_threads(store, job.manifest, job.files);
  EXPECT_THAT(outcomes[0], HasSubstr("cannot be written"));
  EXPECT_THAT(outcomes[1], HasSubstr("called off"));
  EXPECT_THAT(outcomes[2], HasSubstr("called off"));
  EXPECT_EQ(entries(folder.path()), 0U);
}

TEST(ShardedSave, ASaveThatIsCalledOffIsGoneAlthoughAnotherStillWritesIntoIt) {
  const MemoryDir folder;
  for (int round = 0; round < 50; ++round) {
    auto staging = std::make_unique<StagingDirectory>(staging_path(folder.path(), round));
    const std::string path = staging->path();
    std::atomic<int> written = 0;
    std::thread writer([&] {
      try {
        while (true) write_file_atomically(fmt::format("{}/{}", path, written++), "part", 0600);
      } catch (const Failure&) {  // it is gone
      }
    });
    while (written < 3) std::this_thread::yield();
    staging.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.join();
    ASSERT_EQ(entries(folder.path()), 0U) << "round " << round;
  }
}

TEST(ShardedSave, APartIsWrittenNowhereElseWhenALinkIsPutInPlaceOfTheFolderAboveIt) {
  const MemoryDir run, elsewhere;
  const auto folder = run.file("checkpoints");
  Store(folder, {.followed = false});
  const StagingDirectory staging(staging_path(folder, 2), 1);
  fs::rename(folder, run.file("moved"));
  fs::create_directory_symlink(elsewhere.path(), folder);
  fs::create_directory(elsewhere.file(staging.name()));
  Job job(2);
  const ShardedSave sharded_save{staging.path(), 1, 2, Seconds{0.05}, 2};
  EXPECT_THAT(failure_of([&] { contribute(sharded_save, job.manifest, job.files[1], folder + "/step-00000002"); }).what,
              HasSubstr(folder + " is a symbolic link"));
  decline(sharded_save, 2, {Kind::system, "busy", kNoRank});
  EXPECT_TRUE(fs::is_empty(elsewhere.file(staging.name())));
}

TEST(ShardedSave, RanksThatDisagreeOnTheirPartsSaveNothing) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(2);
  auto& tensors = job.files[1][0].tensors;
  std::erase_if(tensors, [](const TensorView& t) { return t.of->tensor == "odd"; });
  EXPECT_THAT(save_sharded_on_threads(store, job.manifest, job.files)[0], HasSubstr("of 'odd' are in no piece"));
  EXPECT_EQ(entries(folder.path()), 0U);
}

TEST(ShardedSave, EveryWaitIsBounded) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(3);
  StagingDirectory staging(staging_path(folder.path(), 2));
  ShardedSave sharded_save{staging.path(), 0, 3, Seconds{0.05}};
  EXPECT_THAT(failure_of([&] { store.save(job.manifest, job.files[0], staging, sharded_save); }).what,
              HasSubstr("no part from rank 1, 2 within"));
  sharded_save.rank = 1;
  EXPECT_THAT(failure_of([&] { contribute(sharded_save, job.manifest, job.files[1], folder.file("step-00000002")); }).what,
              HasSubstr("rank 0 did not end the save within"));
  decline(sharded_save, 2, {Kind::system, "busy", kNoRank});
  EXPECT_THAT(failure_of([&] { await_parts(sharded_save, 2); }).what, HasSubstr("rank 1 could not write its part: busy"));
}

TEST(ShardedSave, ARankWithoutRoomToSayWhyCallsTheSaveOffAllTheSame) {
  const MemoryDir folder;
  const StagingDirectory staging(staging_path(folder.path(), 2));
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit no_room{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &no_room), 0);
  decline({staging.path(), 1, 2}, 2, {Kind::system, "No space left on device", kNoRank});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(failure_of([&] { await_parts({staging.path(), 0, 2}, 2); }).what, HasSubstr("rank 1 could not write its part, nor why"));
}

}  // namespace
}  // namespace cohort::checkpoint
