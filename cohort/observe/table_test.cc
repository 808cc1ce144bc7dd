#include "cohort/observe/table.h"

#include <gmock/gmock.h>

#include <limits>

#include "cohort/base/failure_of.h"

namespace cohort::observe {
namespace {

using testing::HasSubstr;

TEST(Table, LinesUpNamesUnitsAndCells) {
  Table table{.columns = {{"rank"}, {"speed", "images/s"}, {"host", "", Align::left}}};
  table.add({"0", cell(32104.0), "größe"});
  table.add({"1", "–", "b"});
  table.add({"10"});
  EXPECT_EQ(table_text(table),
            "rank     speed  host\n"
            "      images/s\n"
            "----  --------  -----\n"
            "   0    32 104  größe\n"
            "   1         –  b\n"
            "  10\n");
}

TEST(Table, WithoutUnitsThereIsNoLineForThem) {
  Table table{.columns = {{"a"}, {"b"}}};
  table.add({"1", "2"});
  EXPECT_EQ(table_text(table), "a  b\n-  -\n1  2\n");
}

TEST(Table, CellsCannotDriveTheTerminal) {
  Table table{.columns = {{"name"}}};
  table.add({"\x1b[2Jx\n"});
  EXPECT_EQ(table_text(table).find('\x1b'), std::string::npos);
  EXPECT_THAT(failure_of([&] { table.add({"1", "2"}); }).what, HasSubstr("2 cells for 1 columns"));
}

TEST(Table, NumbersAsPeopleWriteThem) {
  EXPECT_EQ(cell(0.0), "0");
  EXPECT_EQ(cell(0.0412345), "0.04123");
  EXPECT_EQ(cell(41.2345), "41.23");
  EXPECT_EQ(cell(4120.6), "4121");
  EXPECT_EQ(cell(-1234567.0), "-1 234 567");
  EXPECT_EQ(cell(1.5e-7), "1.5e-07");
  EXPECT_EQ(cell(std::int64_t{60000}), "60 000");
  EXPECT_EQ(cell(std::numeric_limits<double>::quiet_NaN()), "–");
  EXPECT_EQ(percent_cell(0.0412), "4.1");
}

}  // namespace
}  // namespace cohort::observe
