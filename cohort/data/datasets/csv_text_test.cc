#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

std::shared_ptr<const Dataset> opened(std::string_view text, const std::string& more = "context=4") {
  const TempDir dir;
  write_file_atomically(dir.file("t.csv"), text);
  return open_dataset("csv_text(file=" + dir.file("t.csv") + ", " + more + ")");
}

}  // namespace

TEST(CsvText, CutsLongTextsAndFillsShortOnes) {
  const auto set = opened("label,text\n1,\"a,b,c\"\n0,xy\n");
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->form().classes, 2);
  EXPECT_EQ(set->form().labels(), 1);
  Scratch scratch;
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(set->sample(0, scratch).input), 4), "a,b,");
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(set->sample(1, scratch).input), 4), std::string_view("xy\0\0", 4));
  EXPECT_EQ(set->sample(0, scratch).label, 1);
}

TEST(CsvText, NumbersWordsInAlphabeticalOrder) {
  const auto set = opened("good,spam\nhello,ham\nagain,spam\n", "text=0, label=1, context=8");
  ASSERT_EQ(set->size(), 3);
  Scratch scratch;
  EXPECT_EQ(set->sample(0, scratch).label, 1);
  EXPECT_EQ(set->sample(1, scratch).label, 0);
}

TEST(CsvText, SkipsAHeaderOfWordLabelsWhenTold) { EXPECT_EQ(opened("kind,words\nham,hi\n", "header=yes")->size(), 1); }

TEST(CsvText, RefusesColumnsThatAreNotThere) {
  const Error error = failure_of([] { opened("1,a\n", "text=2"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::HasSubstr("2 columns, text in column 2"));
}

}  // namespace cohort::data
