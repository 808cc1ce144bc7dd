#include "cohort/data/csv_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cohort/base/failure_of.h"
#include "cohort/data/csv_values.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Dataset> table(std::string_view text, const std::string& more = "", const Form* training = nullptr) {
  return read_csv(text, csv_schema().read(Spec::parse("csv(file=t.csv" + (more.empty() ? "" : ", " + more) + ")")), training);
}

Error refused(std::string_view text, const std::string& more = "", const Form* training = nullptr) {
  return failure_of([&] { table(text, more, training); });
}

std::vector<float> features(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  std::vector<float> values(static_cast<std::size_t>(set.form().elements()));
  std::memcpy(values.data(), set.sample(index, scratch).input, values.size() * sizeof(float));
  return values;
}

std::int64_t label(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  return set.sample(index, scratch).label;
}

std::vector<float> targets(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  const float* at = set.sample(index, scratch).values;
  return {at, at + set.form().targets};
}

constexpr std::string_view kFlowers = "id,length,width,species\n1,5.1,3.5,setosa\n2,\"7\",-3.2e0,versicolor\n3, 6.3 ,+3.3,setosa\n";

}  // namespace

TEST(CsvTable, TakesFloatFeaturesAndWordsAsClassesInAlphabeticalOrder) {
  const auto set = table(kFlowers, "label=species, ignore=id");
  ASSERT_EQ(set->size(), 3);
  EXPECT_EQ(set->form().input, Input::floats);
  EXPECT_THAT(set->form().shape, ElementsAre(2));
  EXPECT_THAT(set->form().names, ElementsAre("setosa", "versicolor"));
  EXPECT_THAT(set->form().columns, ElementsAre("length", "width"));
  EXPECT_THAT(features(*set, 1), ElementsAre(7, -3.2F));
  EXPECT_THAT(features(*set, 2), ElementsAre(6.3F, 3.3F));
  EXPECT_EQ(label(*set, 1), 1);
}

TEST(CsvTable, ColumnsGoByNameOrNumberFromEitherEnd) {
  for (const std::string columns :
       {"label=species, features=width/length", "label=-1, features=\"width, length\"", "label=3, features=2/1"}) {
    const auto set = table(kFlowers, columns);
    EXPECT_THAT(features(*set, 0), ElementsAre(3.5F, 5.1F)) << columns;
    EXPECT_EQ(set->form().classes, 2);
  }
  EXPECT_THAT(features(*table("km/h,label\n90,1\n", "features=km/h"), 0), ElementsAre(90));
}

TEST(CsvTable, AColumnCalledLabelOrClassNeedsNoWord) {
  EXPECT_EQ(table("x,y,Class\n1,2,b\n3,4,a\n")->form().names.front(), "a");
  const Error error = refused("x,y,kind\n1,2,b\n");
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, AllOf(HasSubstr("label=COLUMN"), HasSubstr("target=COLUMN"), HasSubstr("x, y, kind")));
}

TEST(CsvTable, PredictsOneOrSeveralNumbers) {
  const auto set = table("a,price,b,rent\n1,200000,2,1.5\n3,1e5,4,0.5\n", "target=rent/price");
  EXPECT_EQ(set->form().targets, 2);
  EXPECT_EQ(set->form().classes, 0);
  EXPECT_THAT(set->form().names, ElementsAre("rent", "price"));
  EXPECT_THAT(features(*set, 1), ElementsAre(3, 4));
  EXPECT_THAT(targets(*set, 0), ElementsAre(1.5F, 200000));
  EXPECT_THAT(refused("a,b\n1,2\n", "target=a, label=b").what, HasSubstr("not both"));
  EXPECT_THAT(refused("a,b\n1,2\n", "target=a, features=a/b").what, HasSubstr("column 0 ('a')"));
}

TEST(CsvTable, AHeaderIsALineWithoutANumberOrWithALabelThatIsNone) {
  EXPECT_EQ(table("1,2,x\n3,4,y\n", "label=2")->size(), 2);
  EXPECT_EQ(table("a,b,c\n3,4,y\n", "label=2")->size(), 1);
  EXPECT_EQ(table("7,8,label\n3,4,1\n3,4,0\n", "label=2")->size(), 2);
  EXPECT_EQ(table("7,8,9\n3,4,1\n", "label=2, header=yes")->size(), 1);
  EXPECT_THAT(refused("a,b\n1,2\n", "label=b, header=no").what, HasSubstr("header=no"));
}

TEST(CsvTable, TakesAnyShapeAndOtherSeparators) {
  EXPECT_THAT(table("1;2;3;4;1\n", "label=-1, shape=2x2, separator=semicolon")->form().shape, ElementsAre(2, 2));
  const auto image = table("0\t0.5\t1\n", "label=0, shape=1x1x2, values=floats, separator=tab");
  EXPECT_EQ(image->form().input, Input::floats);
  EXPECT_THAT(image->form().shape, ElementsAre(1, 1, 2));
  EXPECT_THAT(refused("1,2,3\n", "label=0, shape=5").what, HasSubstr("shape 5 wants 6 columns"));
  EXPECT_THAT(refused("1,2,3\n", "label=0, shape=1x1x1x1x2").what, HasSubstr("1 to 4 sizes"));
}

TEST(CsvTable, WithoutAShapeALabelAnd784ColumnsAreAnImageOfBytes) {
  std::string line = "5";
  for (int i = 0; i < 784; ++i) line += ",7";
  const auto set = table(line + "\n");
  EXPECT_EQ(set->form().input, Input::pixels);
  EXPECT_THAT(set->form().shape, ElementsAre(1, 28, 28));
  EXPECT_EQ(table(line + "\n", "label=0, values=floats")->form().shape.size(), 1u);
}

TEST(CsvTable, MissingValuesAreRefusedByLineAndColumn) {
  for (const std::string missing : {"", "NA", "nan", "n/a", "NULL", "?", "  "}) {
    const Error error = refused("x,y,label\n1,2,0\n3," + missing + ",1\n");
    EXPECT_EQ(error.kind, Kind::corrupt) << missing;
    EXPECT_THAT(error.what, AllOf(HasSubstr("line 3"), HasSubstr("column 1 ('y') has no value"), HasSubstr("missing=mean")));
  }
  EXPECT_THAT(refused("x,label\n1,\n").what, AllOf(HasSubstr("line 2"), HasSubstr("column 1 ('label')")));
  EXPECT_THAT(refused("x,p\n1,\n", "target=p, missing=mean").what, HasSubstr("missing=drop"));
}

TEST(CsvTable, MissingValuesAreFilledOrTheirLinesLeftOut) {
  constexpr std::string_view kText = "x,y,label\n1,2,0\n3,,1\n5,6,1\n";
  EXPECT_THAT(features(*table(kText, "missing=mean"), 1), ElementsAre(3, 4));
  EXPECT_THAT(features(*table(kText, "missing=zero"), 1), ElementsAre(3, 0));
  const auto dropped = table(kText, "missing=drop");
  EXPECT_EQ(dropped->size(), 2);
  EXPECT_THAT(features(*dropped, 1), ElementsAre(5, 6));
  EXPECT_EQ(table("x,p\n1,\n2,3\n", "target=p, missing=drop")->size(), 1);
  EXPECT_EQ(table("x,label\n1,\n2,3\n", "missing=drop")->size(), 1);
  EXPECT_THAT(refused("x,label\n,1\n", "missing=mean").what, HasSubstr("no value in any line"));
  EXPECT_THAT(refused("x,label\n,1\n", "missing=drop").what, HasSubstr("not one line"));
}

TEST(CsvTable, WhatIsNoNumberIsRefusedByLineAndColumn) {
  for (const std::string bad : {"abc", "1e99", "inf", "0x10", "1 2", "1,5\"\n"}) {
    const Error error = refused("x,label\n1,0\n\"" + (bad == "1,5\"\n" ? std::string("1,5") : bad) + "\",1\n");
    EXPECT_EQ(error.kind, Kind::corrupt) << bad;
    EXPECT_THAT(error.what, AllOf(HasSubstr("line 3"), HasSubstr("column 0 ('x')"))) << bad;
  }
  EXPECT_THAT(refused("x,label\n1,0\n2,cat\n").what, HasSubstr("line 3"));
  EXPECT_THAT(refused("x,label\n1,0\n", "ignore=z").what, AllOf(HasSubstr("'z'"), HasSubstr("x, label")));
}

TEST(CsvTable, ATestSetHasTheClassesTheMeansAndTheColumnsOfTraining) {
  const auto train = table("x,y,kind\n1,10,b\n3,20,a\n5,30,c\n", "label=kind, missing=mean");
  const auto test = table("kind,y,note,x\nc,1,hi,\nb,,ho,2\n", "label=kind, missing=mean", &train->form());
  EXPECT_EQ(test->form().classes, 3);
  EXPECT_EQ(test->form().names, train->form().names);
  EXPECT_EQ(label(*test, 0), 2);
  EXPECT_EQ(label(*test, 1), 1);
  EXPECT_THAT(features(*test, 0), ElementsAre(3, 1));
  EXPECT_THAT(features(*test, 1), ElementsAre(2, 20));
  const Error error = refused("x,y,kind\n1,2,zebra\n", "label=kind", &train->form());
  EXPECT_THAT(error.what, AllOf(HasSubstr("line 2"), HasSubstr("'zebra'"), HasSubstr("a, b, c")));
  EXPECT_THAT(refused("x,kind\n1,a\n", "label=kind", &train->form()).what, HasSubstr("'y'"));
}

TEST(CsvTable, AFileToPredictNeedsNothingToLearn) {
  const auto train = table("x,y,kind\n1,10,b\n3,20,a\n", "label=kind");
  for (const std::string text : {"y,x\n10,1\n", "1,10\n"}) {
    const auto rows = table(text, "label=kind", &train->form());
    EXPECT_TRUE(rows->form().unlabelled);
    EXPECT_EQ(rows->form().classes, 2);
    EXPECT_THAT(features(*rows, 0), ElementsAre(1, 10));
    EXPECT_EQ(label(*rows, 0), -100);
  }
  const auto by_number = table("x,y\n10,1\n", "label=-1", &train->form());  // the last column is a feature here
  EXPECT_TRUE(by_number->form().unlabelled);
  EXPECT_THAT(features(*by_number, 0), ElementsAre(10, 1));
  const auto houses = table("x,price\n1,10\n", "target=price");
  const auto rows = table("x\n5\n", "target=price", &houses->form());
  EXPECT_TRUE(rows->form().unlabelled);
  EXPECT_THAT(targets(*rows, 0), ElementsAre(0));
  EXPECT_FALSE(table("x,price\n1,10\n", "target=price", &houses->form())->form().unlabelled);
}

TEST(CsvTable, ALabelOfMostlyDifferentWordsIsTakenForAMistake) {
  std::string text = "x,label\n";
  for (int i = 0; i < 200; ++i) text += "1," + std::to_string(i) + ".5\n";
  EXPECT_THAT(refused(text).what, AllOf(HasSubstr("200 different words"), HasSubstr("target=")));
  EXPECT_EQ(table(text, "labels=names")->form().classes, 200);
}

TEST(CsvTable, PassesOverAByteOrderMark) { EXPECT_EQ(table("\xef\xbb\xbfx,label\n1,0\n", "features=x")->form().columns.front(), "x"); }

}  // namespace cohort::data
