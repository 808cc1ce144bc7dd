#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"
#include "cohort/data/testing.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct IdxFolder : testing::Test {
  TempDir dir;
  std::string spec() const { return "idx(dir=" + dir.path() + ")"; }
  void write(std::string_view images, std::string_view labels) const {
    write_file_atomically(dir.file("train-images-idx3-ubyte"), images);
    write_file_atomically(dir.file("train-labels-idx1-ubyte.gz"), gzip(labels));
  }
};

}  // namespace

TEST_F(IdxFolder, GivesImagesAndLabelsPlainOrGzip) {
  write(idx_file({2, 1, 3}, "abcdef"), idx_file({2}, {"\x07\x01", 2}));
  const auto set = open_dataset(spec());
  EXPECT_EQ(set->size(), 2);
  EXPECT_THAT(set->form().shape, ElementsAre(1, 1, 3));
  EXPECT_EQ(set->form().classes, 8);
  Scratch scratch;
  const Sample sample = set->sample(1, scratch);
  EXPECT_EQ(sample.input[0], 'd');
  EXPECT_EQ(sample.label, 1);
  EXPECT_THAT(set->where(1), HasSubstr("train-images-idx3-ubyte, sample 1"));
}

TEST_F(IdxFolder, SaysWhatIsMissingOrDoesNotFit) {
  EXPECT_EQ(failure_of([&] { open_dataset(spec()); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([&] { open_dataset(spec()); }).what, HasSubstr("train-images-idx3-ubyte.gz"));
  write(idx_file({2, 1, 3}, "abcdef"), idx_file({3}, {"\x07\x01\x01", 3}));
  EXPECT_THAT(failure_of([&] { open_dataset(spec()); }).what, AllOf(HasSubstr("2 images"), HasSubstr("3 labels")));
  write(idx_file({2, 1, 3}, "abcde"), idx_file({2}, "ab"));
  EXPECT_EQ(failure_of([&] { open_dataset(spec()); }).kind, Kind::corrupt);
  write(idx_file({2, 1, 3}, "abcdef"), idx_file({2}, {"\x01\x07", 2}));
  EXPECT_THAT(failure_of([&] { open_dataset("idx(classes=4, dir=" + dir.path() + ")"); }).what,
              HasSubstr("sample 1 has label 7, expected 0 to 3"));
}

TEST_F(IdxFolder, RefusesAnEmptySet) {
  write(idx_file({0, 28, 28}, ""), idx_file({0}, ""));
  EXPECT_THAT(failure_of([&] { open_dataset(spec()); }).what, HasSubstr("without a single sample"));
}

}  // namespace cohort::data
