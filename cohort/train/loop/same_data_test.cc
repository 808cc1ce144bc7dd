#include "cohort/train/loop/same_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/collective/ranks.h"
#include "cohort/nn/zoo.h"

namespace cohort::train::same_data_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct SameData : testing::Test {
  TempDir dir;
  TrainConfig config;

  ModelAndData copy_of(int host, const std::string& train, const std::string& test = "0,1\n") const {
    const auto open = [&](const std::string& name, const std::string& content) {
      const std::string path = fmt::format("{}/{}-{}", dir.path(), host, name);
      write_file_atomically(path, content);
      return data::open_dataset(fmt::format("csv(file={}, shape=1x1x1, classes=2)", path));
    };
    return {.model = nn::make_model("mlp(in=1, hidden=2, out=2)", 1), .train = open("train.csv", train), .test = open("test.csv", test)};
  }
  // What each of three ranks says when rank 2 has `other`.
  std::vector<std::string> refusals(const std::string& other, const std::string& test = "0,1\n") {
    std::vector<std::string> said(3);
    collective::run_ranks(3, [&](collective::Communicator& comm) {
      const int rank = comm.rank().value;
      const ModelAndData mine = rank == 2 ? copy_of(2, other, test) : copy_of(rank, "0,1\n1,2\n");
      said[static_cast<std::size_t>(rank)] = failure_of([&] { check_same_data(comm, mine, config); }).what;
      comm.barrier();  // the communicator still works
    });
    return said;
  }
};

TEST_F(SameData, CopiesOnSeveralHostsAreTheSame) { EXPECT_THAT(refusals("0,1\n1,2\n"), testing::Each("(it did not fail)")); }

TEST_F(SameData, ARankWithAnotherCopyIsNamedOnAllOfThemWithItsFile) {
  config.data.train = "csv(file=train.csv)";
  EXPECT_THAT(refusals("0,1\n1,2\n0,3\n"),
              testing::Each(AllOf(HasSubstr("data.train 'csv(file=train.csv)': number of samples: 2 on rank 0 but 3 on rank 2"),
                                  HasSubstr("give every rank the same files"))));
  EXPECT_THAT(refusals("0,1\n1,3\n"), testing::Each(AllOf(HasSubstr("content of " + dir.file("0-train.csv")), HasSubstr(" on rank 0 but "),
                                                          HasSubstr("on rank 2 (content of " + dir.file("2-train.csv")))));
  config.data.test = "csv(file=test.csv)";
  EXPECT_THAT(refusals("0,1\n1,2\n", "1,1\n"), testing::Each(HasSubstr("data.test 'csv(file=test.csv)': labels of ")));
}

}  // namespace
}  // namespace cohort::train::same_data_test
