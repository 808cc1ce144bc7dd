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

TEST(TextDataset, RefusesATextShorterThanAWindow) {
  EXPECT_EQ(opened("abc", "context=2")->size(), 1);
  EXPECT_THAT(failure_of([] { opened("ab", "context=2"); }).what, testing::HasSubstr("smaller context"));
}

}  // namespace cohort::data
