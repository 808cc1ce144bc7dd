#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

std::shared_ptr<const Dataset> opened(std::string_view text, const std::string& more) {
  const TempDir dir;
  write_file_atomically(dir.file("t"), text);
  return open_dataset("text(file=" + dir.file("t") + ", " + more + ")");
}

std::string_view input(const Sample& s, std::size_t n) { return {reinterpret_cast<const char*>(s.input), n}; }
std::string_view targets(const Sample& s, std::size_t n) { return {reinterpret_cast<const char*>(s.targets), n}; }

}  // namespace

TEST(TextDataset, LabelsEveryTokenWithTheNext) {
  const auto set = opened("abcdefgh", "context=3");
  ASSERT_EQ(set->size(), 2);
  EXPECT_TRUE(set->form().next_tokens);
  EXPECT_EQ(set->form().labels(), 3);
  Scratch scratch;
  EXPECT_EQ(input(set->sample(1, scratch), 3), "def");
  EXPECT_EQ(targets(set->sample(1, scratch), 3), "efg");
}

TEST(TextDataset, KeepsTrainingAndTestPartsApart) {
  const auto train = opened("aaaaaaaaabbbbbbbbb", "context=2, to=0.5");
  const auto test = opened("aaaaaaaaabbbbbbbbb", "context=2, from=0.5");
  Scratch scratch;
  for (std::int64_t i = 0; i < train->size(); ++i) EXPECT_EQ(targets(train->sample(i, scratch), 2), "aa");
  for (std::int64_t i = 0; i < test->size(); ++i) EXPECT_EQ(input(test->sample(i, scratch), 2), "bb");
}

TEST(TextDataset, HasTheCharactersOfTheWholeFileInBothParts) {
  const auto train = opened(
      "abc\xc3\xa9"
      "abcz",
      "context=2, tokens=characters, to=0.5");
  EXPECT_THAT(train->form().names, testing::ElementsAre("a", "b", "c", "z", "\xc3\xa9"));
  EXPECT_EQ(train->form().vocabulary, 5);
  Scratch scratch;
  const Sample s = train->sample(0, scratch);
  EXPECT_EQ(reinterpret_cast<const std::int64_t*>(s.input)[1], 1);
  EXPECT_EQ(s.ids[0], 1);
  EXPECT_EQ(s.ids[1], 2);
}

TEST(TextDataset, ATestSetHasTheVocabularyOfTraining) {
  const TempDir dir;
  write_file_atomically(dir.file("a"), "the cat the cat the hat the cat ");
  write_file_atomically(dir.file("b"), "the rat the rat");
  const auto train = open_dataset("text(file=" + dir.file("a") + ", context=4, tokens=bpe, vocab=270)");
  const auto test = open_dataset("text(file=" + dir.file("b") + ", context=4, tokens=bpe, vocab=270)", train->form());
  EXPECT_GT(train->form().vocabulary, 256);
  EXPECT_EQ(test->form().names, train->form().names);
  const Error error = failure_of([&] {
    const auto letters = open_dataset("text(file=" + dir.file("a") + ", context=4, tokens=characters)");
    open_dataset("text(file=" + dir.file("b") + ", context=4, tokens=characters)", letters->form());
  });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::HasSubstr("the character 'r' at byte 4"));
}

TEST(TextDataset, RefusesATextShorterThanAWindow) {
  EXPECT_EQ(opened("abc", "context=2")->size(), 1);
  EXPECT_THAT(failure_of([] { opened("ab", "context=2"); }).what, testing::HasSubstr("smaller context"));
}

}  // namespace cohort::data
