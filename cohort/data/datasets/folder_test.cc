#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/data/dataset.h"
#include "cohort/data/png_testing.h"

namespace cohort::data {
namespace {

using testing::HasSubstr;

struct Folders : testing::Test {
  TempDir dir;
  std::string spec() const { return "folder(size=1x1, dir=" + dir.path() + ")"; }
  void put(const std::string& folder, const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(dir.file(folder));
    write_file_atomically(dir.file(folder + "/" + name), content);
  }
};

}  // namespace

TEST_F(Folders, AreClassesInAlphabeticalOrder) {
  put("dog", "1.PNG", png_file(1, 1, {9, 8, 7}));
  put("cat", "2.png", png_file(2, 2, std::vector<std::uint8_t>(12, 50)));
  put("cat", "notes.txt", "not a picture");
  const auto set = open_dataset(spec());
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->form().classes, 2);
  EXPECT_THAT(set->form().shape, testing::ElementsAre(3, 1, 1));
  Scratch scratch;
  EXPECT_EQ(set->sample(0, scratch).label, 0);
  EXPECT_EQ(set->sample(0, scratch).input[2], 50);
  EXPECT_EQ(set->sample(1, scratch).label, 1);
  EXPECT_EQ(set->sample(1, scratch).input[0], 9);
  EXPECT_THAT(set->where(1), HasSubstr("dog/1.PNG"));
}

TEST_F(Folders, RefuseAPictureThatWasWrittenSinceTheSetWasOpened) {
  put("cat", "1.png", png_file(1, 1, {1, 2, 3}));
  put("cat", "2.png", png_file(1, 1, {4, 5, 6}));
  const auto set = open_dataset(spec());
  put("cat", "1.png", png_file(1, 2, {1, 2, 3, 4, 5, 6}));
  Scratch scratch;
  const Error error = failure_of([&] { set->sample(0, scratch); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("cat/1.png changed since the data set was opened"));
  EXPECT_EQ(set->sample(1, scratch).input[0], 4);
  EXPECT_NO_THROW(open_dataset(spec())->sample(0, scratch));
}

TEST_F(Folders, AreToldApartByNamesSizesAndContentOfTheirPicturesNotByTheirPlace) {
  const auto fingerprint = [&] { return open_dataset(spec())->fingerprint(); };
  put("cat", "1.png", png_file(1, 1, {1, 2, 3}));
  put("dog", "1.png", png_file(1, 1, {4, 5, 6}));
  const Fingerprint before = fingerprint();
  const auto changed = [&] { return difference(before, "before", fingerprint(), "now"); };
  std::filesystem::last_write_time(dir.file("cat/1.png"), std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(changed(), "") << "copies have other times";
  put("dog", "1.png", png_file(1, 1, {4, 5, 7}));
  EXPECT_THAT(changed(), HasSubstr("content of 2 pictures"));
  put("dog", "1.png", png_file(1, 1, {4, 5, 6}));
  EXPECT_EQ(changed(), "");
  std::filesystem::rename(dir.file("dog/1.png"), dir.file("dog/2.png"));
  EXPECT_THAT(changed(), HasSubstr("pictures of class 'dog': 1 with hash "));
  put("cat", "2.png", png_file(1, 1, {7, 8, 9}));
  EXPECT_EQ(changed(), "number of samples: 2 before but 3 now");
}

TEST_F(Folders, ThatAreHiddenOrHoldNoPictureAreNoClassesAndTheLogNamesThem) {
  const std::string pixel = png_file(1, 1, {1, 2, 3});
  put(".ipynb_checkpoints", "1.png", pixel);
  put("cat", "1.png", pixel);
  put("cow", "notes.txt", "not a picture");
  put("dog", "1.png", pixel);
  testing::internal::CaptureStderr();
  const auto set = open_dataset(spec());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(set->size(), 2);
  EXPECT_EQ(set->form().classes, 2);
  EXPECT_THAT(set->form().names, testing::ElementsAre("cat", "dog"));
  Scratch scratch;
  EXPECT_EQ(set->sample(1, scratch).label, 1);
  EXPECT_THAT(log, HasSubstr(dir.path() + ": left out as no classes: '.ipynb_checkpoints' (hidden), 'cow' (no picture in it)\n"));
}

TEST_F(Folders, ThatAreAllClassesAreNotWarnedOf) {
  put("cat", "1.png", png_file(1, 1, {1, 2, 3}));
  testing::internal::CaptureStderr();
  open_dataset(spec());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Folders, LeaveTheWarningToRankZero) {
  put("cat", "1.png", png_file(1, 1, {1, 2, 3}));
  put(".hidden", "1.png", png_file(1, 1, {1, 2, 3}));
  for (const int rank : {0, 1}) {
    set_log_rank(Rank{rank});
    testing::internal::CaptureStderr();
    open_dataset(spec());
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("'.hidden' (hidden)") != std::string::npos, rank == 0);
  }
  set_log_rank(kNoRank);
}

TEST_F(Folders, DecodeLateSoABrokenPictureFailsWhenAskedForByItsPath) {
  put("cat", "1.png", png_file(1, 1, {1, 2, 3}).substr(0, 20));
  const auto set = open_dataset(spec());
  Scratch scratch;
  const Error error = failure_of([&] { set->sample(0, scratch); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("cat/1.png"));
}

TEST_F(Folders, OpenedWithTrainingHaveItsLabelsAlsoWhereSomeClassesAreMissing) {
  const Form trained{.shape = {3, 8, 8}, .classes = 3, .names = {"ant", "cat", "dog"}};
  put("dog", "1.png", png_file(1, 1, {1, 2, 3}));
  const auto set = open_dataset(spec(), trained);
  Scratch scratch;
  EXPECT_EQ(set->sample(0, scratch).label, 2);
  EXPECT_EQ(set->form().names, trained.names);
  EXPECT_FALSE(set->form().unlabelled);
  put("cow", "1.png", png_file(1, 1, {1, 2, 3}));
  EXPECT_THAT(open_dataset(spec(), trained)->form().names, testing::ElementsAre("cow", "dog")) << "the difference shows";
}

TEST_F(Folders, OfLoosePicturesAreForPredictingOnly) {
  const Form trained{.shape = {3, 8, 8}, .classes = 2, .names = {"ant", "cat"}};
  put(".", "b.png", png_file(1, 1, {1, 2, 3}));
  put(".", "a.png", png_file(1, 1, {1, 2, 3}));
  const auto set = open_dataset(spec(), trained);
  Scratch scratch;
  ASSERT_EQ(set->size(), 2);
  EXPECT_TRUE(set->form().unlabelled);
  EXPECT_EQ(set->sample(0, scratch).label, -100);
  EXPECT_THAT(set->where(0), HasSubstr("a.png"));
  EXPECT_EQ(failure_of([&] { open_dataset(spec()); }).kind, Kind::usage);
}

TEST_F(Folders, SayWhatIsMissing) {
  EXPECT_THAT(failure_of([&] { open_dataset(spec()); }).what, HasSubstr("expected dir/class/picture.jpg"));
  EXPECT_THAT(failure_of([] { open_dataset("folder(dir=/nowhere, size=8x8)"); }).what, HasSubstr("/nowhere"));
  EXPECT_THAT(failure_of([&] { open_dataset("folder(size=8, dir=" + dir.path() + ")"); }).what, HasSubstr("height x width"));
}

}  // namespace cohort::data
