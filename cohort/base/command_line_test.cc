#include "cohort/base/command_line.h"

#include <gmock/gmock.h>

#include <CLI/CLI.hpp>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::HasSubstr;

// What `cohort train words..` with these options is refused with.
std::string refusal(std::vector<std::string> words, bool settings = false) {
  CLI::App app("", "cohort train");
  std::string text;
  if (settings) app.add_option("--set", text);
  app.add_option("--backend", text);
  app.add_option("-n,--ranks", text);
  CLI::App* step = app.add_subcommand("step");
  step->add_option("--batch", text);
  words.insert(words.begin(), "train");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return failure_of([&] { parse_command_line(app, static_cast<int>(argv.size()), argv.data()); }).what;
}

TEST(CommandLine, AnUnknownOptionIsAnsweredWithTheNearestOrItsNewName) {
  EXPECT_THAT(refusal({"--comm", "mpi"}), HasSubstr("there is no option --comm, it is called --backend now; `cohort train --help`"));
  EXPECT_THAT(refusal({"--comm=mpi"}), HasSubstr("there is no option --comm, it is called --backend now;"));
  EXPECT_THAT(refusal({"--rnaks", "2"}), HasSubstr("there is no option --rnaks, did you mean --ranks?;"));
  EXPECT_THAT(refusal({"step", "--bacth", "2"}), HasSubstr("there is no option --bacth, did you mean --batch?;"));
}

TEST(CommandLine, NoNameIsGuessedThatThisCommandDoesNotHave) {
  EXPECT_THAT(refusal({"--bits", "free"}), HasSubstr("there is no option --bits; `cohort train --help`"));
  EXPECT_THAT(refusal({"--something-else"}), HasSubstr("there is no option --something-else; `cohort train --help`"));
  EXPECT_THAT(refusal({"word"}), HasSubstr("The following argument was not expected: word; `cohort train --help`"));
}

TEST(CommandLine, ASettingGivenAsAnOptionIsToldHowItIsGiven) {
  EXPECT_THAT(refusal({"--epochs", "1"}, true),
              HasSubstr("there is no option --epochs; a setting is given as --set epochs=..; `cohort train --help`"));
  EXPECT_THAT(refusal({"--epochs", "1"}), testing::Not(HasSubstr("--set")));
}

}  // namespace
}  // namespace cohort
