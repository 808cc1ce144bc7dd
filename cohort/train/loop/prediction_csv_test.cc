#include "cohort/train/loop/prediction_csv.h"

#include <gtest/gtest.h>

namespace cohort::train {
namespace {

const Prediction kHostile{
    .place = "a,\x1b[2Jb.png", .guesses = {{0, "cat \"\x1b]0;x\a\"", 0.5}}, .values = {}, .targets = {}, .label = "d\x9b\n"};

TEST(PredictionCsv, InAFileIsByRfc4180AndChangesNoByte) {
  EXPECT_EQ(csv_line(kHostile, CsvFor::file), "\"a,\x1b[2Jb.png\",\"cat \"\"\x1b]0;x\a\"\"\",0.5,\"d\x9b\n\"\n");
  EXPECT_EQ(csv_heading({}, true, true, CsvFor::file), "file,prediction,probability,label\n");
  EXPECT_EQ(csv_heading({"price", "a,b"}, false, true, CsvFor::file), "row,price,\"a,b\",true price,\"true a,b\"\n");
}

TEST(PredictionCsv, OnATerminalShowsControlCodesInPlaceOfObeyingThem) {
  EXPECT_EQ(csv_line(kHostile, CsvFor::terminal), "\"a,\\x1b[2Jb.png\",\"cat \"\"\\x1b]0;x\\x07\"\"\",0.5,\"d\x9b\n\"\n");
  EXPECT_EQ(csv_heading({"\x1b[31mprice"}, false, false, CsvFor::terminal), "row,\\x1b[31mprice\n");
}

TEST(PredictionCsv, OfARegressionHasValuesAndTargets) {
  const Prediction p{.place = "3", .guesses = {}, .values = {1.5, -2}, .targets = {1, 0.25}, .label = ""};
  EXPECT_EQ(csv_line(p, CsvFor::file), "3,1.5,-2,1,0.25\n");
}

}  // namespace
}  // namespace cohort::train
