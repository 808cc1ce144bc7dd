#include "cohort/sync/graph_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"

namespace cohort::sync {
namespace {

using testing::HasSubstr;

std::string why(std::string_view text, Stochastic what = Stochastic::doubly) {
  const Error error = failure_of([&] { parse_graph(text, "w.txt", what); });
  EXPECT_EQ(error.kind, Kind::usage);
  return error.what;
}

TEST(GraphFile, HasALineForEachRankAndMatricesInTurn) {
  const Graph graph =
      parse_graph("# three ranks\n1/2 1/2 0 # rank 0\n\t1/4  0.5 1/4\r\n# still the same\n1/4 0 3/4\n\n\n1 0 0\n0 1 0\n0 0 1", "w.txt",
                  Stochastic::doubly);
  ASSERT_EQ(graph.size(), 2U);
  EXPECT_EQ(graph[0][1], (std::vector<Neighbour>{{0, 0.25}, {1, 0.5}, {2, 0.25}}));
  EXPECT_EQ(graph[0][2], (std::vector<Neighbour>{{0, 0.25}, {2, 0.75}}));
  EXPECT_EQ(graph[1][2], (std::vector<Neighbour>{{2, 1}}));
}

TEST(GraphFile, WeightsThatKeepNoMeanAreRefusedWithTheSum) {
  EXPECT_THAT(why("0.5 0.5\n0.25 0.5"), HasSubstr("what rank 1 takes sums to 0.75"));
  EXPECT_THAT(why("0.5 0.5\n0.25 0.75"), AllOf(HasSubstr("take of rank 0 sums to 0.75"), HasSubstr("push_sum")));
  EXPECT_EQ(parse_graph("0.75 0.5\n0.25 0.5", "w.txt", Stochastic::columns).size(), 1U) << "sums need not be means";
  EXPECT_THAT(why("0.5 0.5\n0.25 0.75", Stochastic::columns), HasSubstr("take of rank 0 sums to 0.75"));
}

TEST(GraphFile, WhatIsNoMatrixIsRefusedWithItsLine) {
  EXPECT_THAT(why(""), HasSubstr("no weights"));
  EXPECT_THAT(why("# only words\n"), HasSubstr("no weights"));
  EXPECT_THAT(why("1/2 1/2\n1/2"), HasSubstr("w.txt:2: 1 weights"));
  EXPECT_THAT(why("1/2 1/2"), HasSubstr("a matrix of 1 lines"));
  EXPECT_THAT(why("1/2 1/2\n1/2 1/2\n\n1/2 1/2"), HasSubstr("a matrix of 1 lines"));
  EXPECT_THAT(why("1/2 x\n1/2 1/2"), HasSubstr("w.txt:1: "));
  EXPECT_THAT(why("1/2 1/0\n1/2 1/2"), HasSubstr("not between 0 and 1"));
  EXPECT_THAT(why("0/0 1\n1 0"), HasSubstr("not between 0 and 1"));
  EXPECT_THAT(why("1/2 1/2/1\n1/2 1/2"), HasSubstr("is no weight"));
  EXPECT_THAT(why("-1 2\n2 -1"), HasSubstr("not between 0 and 1"));
}

TEST(GraphFile, RanksThatKeepNothingOrNeverMeetAreRefused) {
  EXPECT_THAT(why("0 1\n1 0"), HasSubstr("keeps nothing of its own"));
  EXPECT_THAT(why("1 0\n0 1"), HasSubstr("never hear"));
  EXPECT_THAT(why("1 0.5\n0 0.5", Stochastic::columns), HasSubstr("never hear")) << "one way";
}

TEST(GraphFile, AFileThatIsNotThereIsNamed) {
  const TempDir folder;
  const Error error = failure_of([&] { read_graph(folder.file("none.txt"), Stochastic::doubly); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, HasSubstr("none.txt"));
}

}  // namespace
}  // namespace cohort::sync
