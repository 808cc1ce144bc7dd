#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> ids_of(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  const auto* at = reinterpret_cast<const std::int64_t*>(set.sample(index, scratch).input);
  return {at, at + set.form().shape[0]};
}

std::int64_t label_of(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  return set.sample(index, scratch).label;
}

}  // namespace

TEST(NgramsDataset, PadsInFrontAndLabelsWithTheNextWord) {
  const TempDir dir;
  write_file_atomically(dir.file("t"), "The cat sat.\n\nThe dog\n");
  const auto set = open_dataset("ngrams(file=" + dir.file("t") + ")");
  EXPECT_THAT(set->form().names, ElementsAre("", "the", "cat", "sat", "dog"));
  ASSERT_EQ(set->size(), 3);
  EXPECT_THAT(ids_of(*set, 0), ElementsAre(0, 1));
  EXPECT_EQ(label_of(*set, 0), 2);
  EXPECT_THAT(ids_of(*set, 1), ElementsAre(1, 2));
  EXPECT_EQ(label_of(*set, 1), 3);
  EXPECT_EQ(label_of(*set, 2), 4);
}

TEST(NgramsDataset, ShorterContextsKeepTheLastWords) {
  const TempDir dir;
  write_file_atomically(dir.file("t"), "a b c d");
  const auto set = open_dataset("ngrams(file=" + dir.file("t") + ", context=1)");
  EXPECT_THAT(ids_of(*set, 2), ElementsAre(3));
}

TEST(NgramsDataset, WordsThatTrainingDidNotHaveVanish) {
  const TempDir dir;
  write_file_atomically(dir.file("t"), "a b c d");
  write_file_atomically(dir.file("u"), "a z d");
  const auto train = open_dataset("ngrams(file=" + dir.file("t") + ")");
  const auto test = open_dataset("ngrams(file=" + dir.file("u") + ")", train->form());
  ASSERT_EQ(test->size(), 1);
  EXPECT_THAT(ids_of(*test, 0), ElementsAre(0, 0, 1));
  EXPECT_EQ(label_of(*test, 0), 4);
}

TEST(NgramsDataset, RefusesWhatIsNoUtf8) {
  const TempDir dir;
  write_file_atomically(dir.file("t"), "caf\xe9 noir\n");
  const Error error = failure_of([&] { open_dataset("ngrams(file=" + dir.file("t") + ")"); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, testing::HasSubstr("byte 3 (0xe9)"));
}

TEST(NgramsDataset, RefusesLinesOfOneWord) {
  const TempDir dir;
  write_file_atomically(dir.file("t"), "one\ntwo\n");
  const Error error = failure_of([&] { open_dataset("ngrams(file=" + dir.file("t") + ")"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::HasSubstr("no line has two words"));
}

TEST(NgramsDataset, RefusesToTakeAVeryLongLineAsContext) {
  const TempDir dir;
  std::string line;
  for (int k = 0; k < 5000; ++k) line += "word ";
  write_file_atomically(dir.file("t"), line + "\n");
  EXPECT_THAT(failure_of([&] { open_dataset("ngrams(file=" + dir.file("t") + ")"); }).what, testing::HasSubstr("say context="));
  EXPECT_EQ(open_dataset("ngrams(context=4, file=" + dir.file("t") + ")")->form().shape[0], 4);
}

}  // namespace cohort::data
