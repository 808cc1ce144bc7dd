#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
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

TEST_F(Folders, DecodeLateSoABrokenPictureFailsWhenAskedForByItsPath) {
  put("cat", "1.png", png_file(1, 1, {1, 2, 3}).substr(0, 20));
  const auto set = open_dataset(spec());
  Scratch scratch;
  const Error error = failure_of([&] { set->sample(0, scratch); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("cat/1.png"));
}

TEST_F(Folders, SayWhatIsMissing) {
  EXPECT_THAT(failure_of([&] { open_dataset(spec()); }).what, HasSubstr("expected dir/class/picture.jpg"));
  EXPECT_THAT(failure_of([] { open_dataset("folder(dir=/nowhere, size=8x8)"); }).what, HasSubstr("/nowhere"));
  EXPECT_THAT(failure_of([&] { open_dataset("folder(size=8, dir=" + dir.path() + ")"); }).what, HasSubstr("height x width"));
}

}  // namespace cohort::data
