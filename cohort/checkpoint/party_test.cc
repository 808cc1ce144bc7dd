#include "cohort/checkpoint/party.h"

#include <gmock/gmock.h>

#include <atomic>
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
  Samples model = awkward_model(), optimizer = awkward_optimizer();
  std::vector<std::vector<TensorFile>> files;
  Manifest manifest;
};

TEST(Party, LeavesOneFolderAndNothingElse) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(4);
  EXPECT_THAT(save_together(store, job.manifest, job.files), Each("saved"));
  EXPECT_EQ(entries(folder.path()), 1U);
  EXPECT_EQ(entries(folder.file("step-00000002")), 9U) << "two files a rank and the manifest, no parts";
  EXPECT_EQ(store.newest().checkpoint->manifest.step, 2);
}

TEST(Party, AStepSavedAgainReplacesTheOldOneForAll) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(3);
  save_together(store, job.manifest, job.files);
  job.manifest.texts["config"] = "new";
  EXPECT_THAT(save_together(store, job.manifest, job.files), Each("saved"));
  EXPECT_EQ(store.newest().checkpoint->manifest.texts.at("config"), "new");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(Party, ARankWithoutAnythingOfItsOwnTakesPart) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(2);
  job.files.emplace_back();
  EXPECT_THAT(save_together(store, job.manifest, job.files), Each("saved"));
  EXPECT_TRUE(holds(Contents(*store.newest().checkpoint), "model", job.model));
}

TEST(Party, ARankThatFailsCallsTheSaveOffForAllAndOlderOnesStay) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job before(3, 1), job(3, 2);
  save_together(store, before.manifest, before.files);
  job.files[1][0].tensors[0].shape = {1, 2, 3};  // cannot be written: its bytes are others
  const auto outcomes = save_together(store, job.manifest, job.files);
  EXPECT_THAT(outcomes[0], AllOf(HasSubstr("rank 1 could not write its part"), HasSubstr("the newest there is step 1")));
  EXPECT_THAT(outcomes[1], AllOf(HasSubstr("the part of rank 1 was not written"), HasSubstr("cannot be written")));
  EXPECT_THAT(outcomes[2], HasSubstr("called off"));
  EXPECT_EQ(entries(folder.path()), 1U);
  EXPECT_EQ(store.newest().checkpoint->manifest.step, 1);
}

TEST(Party, RankZeroThatFailsIsHeardByTheOthers) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(3);
  job.files[0][0].tensors[0].shape = {1, 2, 3};
  const auto outcomes = save_together(store, job.manifest, job.files);
  EXPECT_THAT(outcomes[0], HasSubstr("cannot be written"));
  EXPECT_THAT(outcomes[1], HasSubstr("called off"));
  EXPECT_THAT(outcomes[2], HasSubstr("called off"));
  EXPECT_EQ(entries(folder.path()), 0U);
}

TEST(Party, ASaveThatIsCalledOffIsGoneAlthoughAnotherStillWritesIntoIt) {
  const MemoryDir folder;
  for (int round = 0; round < 50; ++round) {
    auto workshop = std::make_unique<Workshop>(workshop_path(folder.path(), round));
    const std::string path = workshop->path();
    std::atomic<int> written = 0;
    std::thread writer([&] {
      try {
        while (true) write_file_atomically(fmt::format("{}/{}", path, written++), "part", 0600);
      } catch (const Failure&) {  // it is gone
      }
    });
    while (written < 3) std::this_thread::yield();
    workshop.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.join();
    ASSERT_EQ(entries(folder.path()), 0U) << "round " << round;
  }
}

TEST(Party, RanksThatDisagreeOnWhoOwnsWhatSaveNothing) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(2);
  auto& tensors = job.files[1][0].tensors;
  std::erase_if(tensors, [](const TensorView& t) { return t.of->tensor == "odd"; });
  EXPECT_THAT(save_together(store, job.manifest, job.files)[0], HasSubstr("of 'odd' are in no piece"));
  EXPECT_EQ(entries(folder.path()), 0U);
}

TEST(Party, NobodyWaitsForEver) {
  const MemoryDir folder;
  const Store store(folder.path());
  Job job(3);
  Workshop workshop(workshop_path(folder.path(), 2));
  Party party{workshop.path(), 0, 3, Seconds{0.05}};
  EXPECT_THAT(failure_of([&] { store.save(job.manifest, job.files[0], workshop, party); }).what,
              HasSubstr("no part from rank 1, 2 within"));
  party.rank = 1;
  EXPECT_THAT(failure_of([&] { contribute(party, job.manifest, job.files[1], folder.file("step-00000002")); }).what,
              HasSubstr("rank 0 did not end the save within"));
  decline(party, 2, {Kind::system, "busy", kNoRank});
  EXPECT_THAT(failure_of([&] { await_parts(party, 2); }).what, HasSubstr("rank 1 could not write its part: busy"));
}

}  // namespace
}  // namespace cohort::checkpoint
