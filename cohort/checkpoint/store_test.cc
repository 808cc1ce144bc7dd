#include "cohort/checkpoint/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/checkpoint/samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

Saved save(const Store& store, std::int64_t step) {
  const SampleCheckpoint sample(step);
  return store.save(sample.manifest, sample.files);
}
std::vector<std::int64_t> steps(const Store& store) {
  std::vector<std::int64_t> found;
  for (const Listed& listed : store.list()) found.push_back(listed.step);
  return found;
}
std::size_t entries(const std::string& folder) { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }

TEST(Store, WhatWasSavedIsTheNewest) {
  const MemoryDir folder;
  const Store store(folder.file("runs/a"));
  EXPECT_FALSE(store.newest().checkpoint);
  const SampleCheckpoint sample(1200);
  const auto saved = store.save(sample.manifest, sample.files);
  EXPECT_EQ(saved.checkpoint.path, folder.file("runs/a/step-00001200"));

  const auto newest = store.newest();
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_TRUE(newest.refused.empty());
  EXPECT_EQ(newest.checkpoint->manifest, saved.checkpoint.manifest);
  EXPECT_EQ(newest.checkpoint->manifest.texts, sample.manifest.texts);
  const SafetensorsFile model(newest.checkpoint->file("model.safetensors"));
  EXPECT_TRUE(std::ranges::equal(model.read("weight"), sample.model.tensors()[0].data));
  EXPECT_THAT(failure_of([&] { newest.checkpoint->file("modle.safetensors"); }).what, HasSubstr("did you mean 'model.safetensors'"));
  EXPECT_EQ(entries(store.folder()), 1U) << "no temporaries";
}

TEST(Store, ThatFollowsNothingRefusesALinkInPlaceOfItsFolderAtTheStartAndAtEachSave) {
  const MemoryDir run, elsewhere;
  const auto folder = run.file("checkpoints");
  const Store store(folder, {.followed = false});
  save(store, 1);
  fs::rename(folder, run.file("moved"));
  fs::create_directory_symlink(elsewhere.path(), folder);
  EXPECT_THAT(failure_of([&] { save(store, 2); }).what, HasSubstr(folder + " is a symbolic link"));
  EXPECT_EQ(failure_of([&] { Store(folder, {.followed = false}); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([&] { raise_fence(Folder(folder, 1), {"a", 1}); }).kind, Kind::corrupt);
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  save(Store(folder), 3);  // of a program's own: the link is its user's
  EXPECT_TRUE(fs::exists(elsewhere.file("step-00000003")));
}

// Somebody exchanges the folder and a link that leads elsewhere, again and again.
TEST(Store, ThatFollowsNothingWritesNowhereElseWhileALinkComesAndGoesInItsPlace) {
  const MemoryDir run, elsewhere;
  const auto folder = run.file("checkpoints"), link = run.file("link");
  const Store store(folder, {.keep = 1, .followed = false, .fence = {"a", 1}});
  fs::create_directory_symlink(elsewhere.path(), link);
  std::atomic<bool> stop = false;
  std::thread exchanges([&] {
    while (!stop) ::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
  });
  int saved = 0;
  constexpr int kMost = 100'000;  // on a busy machine the first save that meets the folder may be late
  for (int step = 1; step <= 200 || (saved == 0 && step < kMost); ++step) try {
      save(store, step);
      ++saved;
    } catch (const Failure& failure) {  // it met the link
      EXPECT_TRUE(failure.kind() == Kind::corrupt || failure.kind() == Kind::system) << failure.what();
    }
  stop = true;
  exchanges.join();
  EXPECT_GT(saved, 0);
  EXPECT_TRUE(fs::is_empty(elsewhere.path())) << fs::directory_iterator(elsewhere.path())->path();
}

TEST(Store, FilesAreForTheirOwnerOnly) {
  const MemoryDir folder;
  const Store store(folder.file("a"));
  const auto saved = save(store, 1);
  struct stat st {};
  for (const auto& path : {store.folder(), saved.checkpoint.path, saved.checkpoint.file("model.safetensors")}) {
    ASSERT_EQ(::stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 077U, 0U) << path;
  }
}

TEST(Store, KeepsTheLastFewAndNamesWhatItRemoved) {
  const MemoryDir folder;
  const Store store(folder.path(), {.keep = 2});
  save(store, 1);
  EXPECT_TRUE(save(store, 2).removed.empty());
  EXPECT_THAT(save(store, 3).removed, ElementsAre(folder.file("step-00000001")));
  EXPECT_THAT(steps(store), ElementsAre(3, 2));
  EXPECT_EQ(entries(store.folder()), 2U);
}

TEST(Store, DamagedOnesDoNotCountAmongThoseToKeep) {
  const MemoryDir folder;
  const Store store(folder.path(), {.keep = 2});
  save(store, 1);
  fs::remove(save(store, 2).checkpoint.file("model.safetensors"));
  const auto saved = save(store, 3);
  EXPECT_TRUE(saved.removed.empty());
  EXPECT_THAT(saved.warnings, ElementsAre(HasSubstr("step-00000002 is damaged")));
  EXPECT_THAT(steps(store), ElementsAre(3, 2, 1)) << "step 1 is the second whole one";
}

TEST(Store, OneJustSavedStaysAlsoBelowNewerOnes) {
  const MemoryDir folder;
  const Store store(folder.path(), {.keep = 1});
  save(store, 9);
  save(store, 5);
  EXPECT_THAT(steps(store), ElementsAre(9, 5));
}

TEST(Store, AStepSavedAgainReplacesTheOldOne) {
  const MemoryDir folder;
  const Store store(folder.path());
  save(store, 7);
  SampleCheckpoint again(7, 100);
  again.manifest.texts["config"] = "new";
  store.save(again.manifest, again.files);
  EXPECT_EQ(store.newest().checkpoint->manifest.texts.at("config"), "new");
  EXPECT_EQ(entries(store.folder()), 1U);
}

TEST(Store, ADamagedNewestFallsBackToTheOneBeforeWithAnError) {
  const MemoryDir folder;
  const Store store(folder.path());
  save(store, 1);
  const auto path = save(store, 2).checkpoint.file("optimizer.safetensors");
  auto content = slurp(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  spill(path, content);
  testing::internal::CaptureStderr();
  const auto newest = store.newest();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("warning"), HasSubstr("step-00000002 cannot be used")));
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest.step, 1);
  ASSERT_EQ(newest.refused.size(), 1U);
  EXPECT_EQ(newest.refused[0].error.kind, Kind::corrupt);
  EXPECT_THAT(newest.refused[0].error.what, AllOf(HasSubstr(path), HasSubstr("sha256"), HasSubstr("the manifest says")));
}

TEST(Store, EverySingleByteOfDamageIsNoticed) {
  const MemoryDir folder;
  const Store store(folder.path());
  const auto checkpoint = save(store, 3).checkpoint;
  for (const auto* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const auto path = checkpoint.path + "/" + name;
    const auto good = slurp(path);
    const auto damaged = [&](const std::string& content) {
      spill(path, content);
      return failure_of([&] { store.verify(checkpoint.path); }).kind == Kind::corrupt;
    };
    for (std::size_t at = 0; at < good.size(); ++at) {
      EXPECT_TRUE(damaged(good.substr(0, at))) << name << " cut at " << at;
      auto flipped = good;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      EXPECT_TRUE(damaged(flipped)) << name << " byte " << at;
    }
    EXPECT_TRUE(damaged(good + "x"));
    EXPECT_FALSE(damaged(good));
    fs::remove(path);
    EXPECT_EQ(failure_of([&] { store.verify(checkpoint.path); }).kind, Kind::system) << name << " is gone";
    spill(path, good);
  }
  fs::rename(checkpoint.path, folder.file("step-00000004"));
  EXPECT_THAT(failure_of([&] { store.verify(folder.file("step-00000004")); }).what, HasSubstr("of step 3, in the folder of step 4"));
}

TEST(Store, AFileOfAnotherCheckpointOrALinkIsNoticed) {
  const MemoryDir folder;
  const Store store(folder.path());
  const auto a = save(store, 1).checkpoint;
  const SampleCheckpoint other(2, 9);
  const auto b = store.save(other.manifest, other.files).checkpoint;
  fs::copy_file(b.file("model.safetensors"), a.file("model.safetensors"), fs::copy_options::overwrite_existing);
  EXPECT_EQ(failure_of([&] { store.verify(a.path); }).kind, Kind::corrupt);
  fs::remove(b.file("model.safetensors"));
  fs::create_symlink("/dev/zero", b.file("model.safetensors"));
  EXPECT_THAT(failure_of([&] { store.verify(b.path); }).what, HasSubstr("no regular file"));
}

TEST(Store, LinksAndFifosForAManifestOrAStepAreRefusedAtOnce) {
  const MemoryDir folder;
  const Store store(folder.file("a"));
  save(store, 1);
  const auto step = [&](std::int64_t n) { return store.folder() + "/" + step_name(n); };
  for (const std::int64_t n : {2, 3}) fs::remove(save(store, n).checkpoint.path + "/manifest.json");
  fs::copy_file(step(1) + "/manifest.json", folder.file("manifest.json"));
  fs::create_symlink(folder.file("manifest.json"), step(2) + "/manifest.json");
  ASSERT_EQ(::mkfifo((step(3) + "/manifest.json").c_str(), 0600), 0);
  fs::create_symlink(step(1), step(4));
  fs::create_symlink(folder.file("nowhere"), step(5));
  ASSERT_EQ(::mkfifo(step(6).c_str(), 0600), 0);
  const auto newest = store.newest();
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest.step, 1);
  std::vector<std::string> why;
  for (const Refusal& refusal : newest.refused) why.push_back(refusal.error.what);
  EXPECT_THAT(why, ElementsAre(HasSubstr("is no folder"), HasSubstr("symbolic link"), HasSubstr("symbolic link"),
                               HasSubstr("no regular file"), HasSubstr("symbolic link")));
}

TEST(Store, MakesItsFolderAgainWhenSomebodyRemovedIt) {
  const MemoryDir folder;
  const Store store(folder.file("runs/a/checkpoints"));
  save(store, 1);
  for (const auto* gone : {"runs/a/checkpoints", "runs"}) {
    fs::remove_all(folder.file(gone));
    testing::internal::CaptureStderr();
    const auto error = failure_of([&] { save(store, 2); });
    EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr(store.folder()), HasSubstr("is made again")));
    EXPECT_EQ(error.kind, Kind::bug) << error.what;
    EXPECT_THAT(steps(store), ElementsAre(2));
    struct stat st {};
    ASSERT_EQ(::stat(store.folder().c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 077U, 0U);
  }
  EXPECT_EQ(store.newest().checkpoint->manifest.step, 2);
}

TEST(Store, OnlyItsOwnNamesAreCheckpoints) {
  EXPECT_EQ(step_of_name("step-00001200"), 1200);
  EXPECT_EQ(step_of_name("step-123456789012"), 123456789012);
  for (const auto* name : {"step-1200", "step-000001200", "step-0000120x", "step-", "step-00001200.tmp", ".tmp-1-1"})
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
}

TEST(Store, TemporariesOfDeadProcessesAreRemovedAtStartThoseOfRunningOnesStay) {
  const MemoryDir folder;
  const auto dead = folder.file(".tmp-5-1"), alive = folder.file(".tmp-6-1");
  for (const auto& path : {dead, alive}) {
    fs::create_directory(path);
    spill(path + "/model.safetensors", "half");
  }
  const Fd lock{::open(alive.c_str(), O_RDONLY | O_DIRECTORY)};
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const Store store(folder.path());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(store.list().empty());
}

TEST(Store, ReadersThatStartMeanwhileDisturbNoSaveAndAlwaysFindACheckpoint) {
  const MemoryDir folder;
  const Store store(folder.path(), {.keep = 1});
  save(store, 1);
  std::atomic<bool> done = false;
  int missed = 0;
  std::thread others([&] {
    while (!done) missed += Store(folder.path()).newest().checkpoint ? 0 : 1;
  });
  std::string wrong;
  for (std::int64_t step = 2; step <= 60 && wrong.empty(); ++step) {
    const auto error = failure_of([&] { save(store, step); });
    if (error.kind != Kind::bug) wrong = error.what;
  }
  done = true;
  others.join();
  EXPECT_EQ(wrong, "");
  EXPECT_EQ(missed, 0);
  EXPECT_THAT(steps(store), ElementsAre(60));
}

TEST(Store, OneThatIsSetAsideIsFoundNoMoreAndReplacesTheOneBefore) {
  const MemoryDir folder;
  const Store store(folder.path());
  for (const std::int64_t step : {1, 2, 3}) save(store, step);
  EXPECT_EQ(store.set_aside(3, "diverged"), folder.path() + "/diverged-00000003");
  EXPECT_THAT(steps(store), ElementsAre(2, 1));
  save(store, 3);
  store.set_aside(3, "diverged");
  EXPECT_THAT(steps(store), ElementsAre(2, 1));
  EXPECT_TRUE(fs::exists(folder.file("diverged-00000003/manifest.json")));
  EXPECT_EQ(failure_of([&] { store.set_aside(9, "diverged"); }).kind, Kind::system);
  EXPECT_THAT(steps(store), ElementsAre(2, 1));
}

TEST(Store, WhatCannotBeSavedIsRefusedAndLeavesNothing) {
  const MemoryDir folder;
  const Store store(folder.path());
  SampleCheckpoint sample(1);
  sample.files[1].name = "../optimizer";
  EXPECT_EQ(failure_of([&] { store.save(sample.manifest, sample.files); }).kind, Kind::usage);
  sample.files[1].name = sample.files[0].name;
  EXPECT_THAT(failure_of([&] { store.save(sample.manifest, sample.files); }).what, HasSubstr("two files"));
  SampleCheckpoint late(2);
  late.files[1].tensors[0].shape = {1};  // found only after the first file is written
  EXPECT_THAT(failure_of([&] { store.save(late.manifest, late.files); }).what,
              AllOf(HasSubstr("checkpoint of step 2"), HasSubstr("was not saved"), HasSubstr("there is no older one")));
  EXPECT_EQ(entries(store.folder()), 0U);
  EXPECT_EQ(failure_of([&] { Store(folder.path(), {.keep = 0}); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::checkpoint
