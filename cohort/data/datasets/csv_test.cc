#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"
#include "cohort/data/testing.h"

namespace cohort::data {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Dataset> opened(std::string_view text, const std::string& more = "shape=1x1x2") {
  const TempDir dir;
  write_file_atomically(dir.file("t.csv"), text);
  return open_dataset("csv(file=" + dir.file("t.csv") + ", " + more + ")");
}

}  // namespace

TEST(CsvDataset, ReadsLabelsAndPixelsWithAndWithoutHeader) {
  for (const std::string head : {"", "label,a,b\n"}) {
    const auto set = opened(head + "3,0,255\n1,\"7\",8\n");
    ASSERT_EQ(set->size(), 2);
    EXPECT_EQ(set->form().classes, 4);
    Scratch scratch;
    EXPECT_EQ(set->sample(1, scratch).label, 1);
    EXPECT_EQ(set->sample(0, scratch).input[1], 255);
    EXPECT_EQ(set->sample(1, scratch).input[0], 7);
  }
}

TEST(CsvDataset, TakesTheLabelFromAnyColumnAndGzip) {
  const auto set = opened(gzip("9,8,2\n"), "shape=2x1x1, label=2, classes=5");
  Scratch scratch;
  EXPECT_EQ(set->sample(0, scratch).label, 2);
  EXPECT_EQ(set->sample(0, scratch).input[1], 8);
  EXPECT_EQ(set->form().classes, 5);
}

TEST(CsvDataset, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(failure_of([] { opened("1,2,256\n"); }).what, AllOf(HasSubstr("line 1"), HasSubstr("column 2 holds '256'")));
  EXPECT_THAT(failure_of([] { opened("1,2,3\nx,2,3\n"); }).what, AllOf(HasSubstr("line 2, byte 6"), HasSubstr("'x'")));
  EXPECT_THAT(failure_of([] { opened("1,2\n"); }).what, HasSubstr("wants 3 columns"));
  EXPECT_THAT(failure_of([] { opened("1,2,3\n", "shape=28x28, values=pixels, label=0"); }).what, HasSubstr("1x28x28"));
  EXPECT_EQ(failure_of([] { open_dataset("csv(file=/nowhere)"); }).kind, Kind::usage);
}

}  // namespace cohort::data
