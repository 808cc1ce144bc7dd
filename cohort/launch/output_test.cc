#include "cohort/launch/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/file.h"

namespace cohort::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The folder of --output, which can be made unusable: a plain file is in its place.
class Folder {
 public:
  const std::string& path() const { return path_; }
  std::string read(const std::string& file) const { return read_file(path_ + "/" + file); }
  void lose() const {
    std::filesystem::remove_all(path_);
    write_file_atomically(path_, "");
  }
  void find_again() const { std::filesystem::remove(path_); }

 private:
  const TempDir parent_{"output"};
  const std::string path_ = parent_.file("logs");
};

LaunchOptions options_of(const Folder& folder) {
  LaunchOptions options;
  options.output = folder.path();
  return options;
}

TEST(Output, AFolderThatCannotBeUsedLaterCostsFilesAndMixesNoWorkers) {
  const Folder folder;
  const LaunchOptions options = options_of(folder);
  Screen screen({});
  Output output(options, screen);
  output.open_files(0, 2);
  folder.lose();
  EXPECT_NO_THROW(output.open_more());
  EXPECT_NO_THROW(output.open_more());
  output.write(2, 2, "two\n", Clock::now());
  output.write(3, 1, "three\n", Clock::now());
  folder.find_again();
  output.open_more();
  output.write(4, 1, "four\n", Clock::now());
  EXPECT_EQ(folder.read("rank.4/stdout"), "four\n");
  EXPECT_EQ(output.last_lines(2), std::vector<std::string>{"two"});
  EXPECT_EQ(screen.pending(1), "[3] three\n[4] four\n");
  EXPECT_THAT(screen.pending(2), AllOf(HasSubstr("--output: cannot make '" + folder.path() + "/rank.2'"), HasSubstr("[2] two\n")));
  EXPECT_THAT(screen.pending(2), Not(HasSubstr("rank.3"))) << "said once";
}

TEST(Output, WhatHasNoFileIsOnTheScreen) {
  const Folder folder;
  LaunchOptions options = options_of(folder);
  options.redirects = {{-1, 3}};  // both streams of all
  Screen screen({});
  Output output(options, screen);
  output.open_files(0, 1);
  output.write(0, 1, "in its file\n", Clock::now());
  EXPECT_EQ(screen.pending(1), "");
  folder.lose();
  output.open_more();
  output.write(1, 1, "without one\n", Clock::now());
  EXPECT_EQ(screen.pending(1), "[1] without one\n");
}

TEST(Output, AFolderThatCannotBeUsedFromTheStartIsAnError) {
  const Folder folder;
  folder.lose();
  const LaunchOptions options = options_of(folder);
  Screen screen({});
  EXPECT_THROW(Output(options, screen).open_files(0, 1), Failure);
}

}  // namespace
}  // namespace cohort::launch
