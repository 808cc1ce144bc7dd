#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct WordPieceDataset : testing::Test {
  TempDir dir;

  // Tokens: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 the, 5 cat, 6 sat, 7 ##s, 8 who, 9 ?
  std::string spec(const std::string& text, const std::string& more) {
    write_file_atomically(dir.file("vocab"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\nsat\n##s\nwho\n?\n");
    const std::string path = dir.file("f" + std::to_string(++files_));
    write_file_atomically(path, text);
    return "wordpiece(file=" + path + ", vocab=" + dir.file("vocab") + ", " + more + ")";
  }
  static std::vector<std::int64_t> ids(const Dataset& set, std::int64_t index) {
    Scratch scratch;
    const auto* at = reinterpret_cast<const std::int64_t*>(set.sample(index, scratch).input);
    return {at, at + set.form().shape[0]};
  }
  static std::vector<std::int64_t> labels(const Dataset& set, std::int64_t index) {
    Scratch scratch;
    const Sample s = set.sample(index, scratch);
    return s.ids == nullptr ? std::vector{s.label} : std::vector<std::int64_t>(s.ids, s.ids + set.form().ids);
  }

 private:
  int files_ = 0;
};

TEST_F(WordPieceDataset, ClassifiesTextsAndPairs) {
  const std::string table = "a,b,mood\nThe cats,sat,good\nsat,the cat,bad\n";
  const auto single = open_dataset(spec(table, "text=a, label=mood, length=6"));
  EXPECT_THAT(single->form().names, ElementsAre("bad", "good"));
  EXPECT_THAT(ids(*single, 0), ElementsAre(2, 4, 5, 7, 3, 0));
  EXPECT_THAT(labels(*single, 0), ElementsAre(1));
  const auto pair = open_dataset(spec(table, "text=a, second=b, label=mood, length=8"));
  EXPECT_THAT(ids(*pair, 1), ElementsAre(2, 6, 3, 4, 5, 3, 0, 0));
}

TEST_F(WordPieceDataset, ATableToPredictMayLackItsLabels) {
  const auto train = open_dataset(spec("a,mood\nthe,good\nsat,bad\n", "text=a, label=mood, length=6"));
  const auto set = open_dataset(spec("a\ncat\n", "text=a, label=mood, length=6"), train->form());
  EXPECT_TRUE(set->form().unlabelled);
  EXPECT_EQ(set->form().classes, 2);
  EXPECT_THAT(ids(*set, 0), ElementsAre(2, 5, 3, 0, 0, 0));
}

TEST_F(WordPieceDataset, TagsTheFirstTokenOfEachWord) {
  const auto set = open_dataset(spec("the D\ncats N\n\nsat\tV\n", "task=tag, length=6"));
  ASSERT_EQ(set->size(), 2);
  EXPECT_THAT(set->form().names, ElementsAre("D", "N", "V"));
  EXPECT_THAT(ids(*set, 0), ElementsAre(2, 4, 5, 7, 3, 0));
  EXPECT_THAT(labels(*set, 0), ElementsAre(-100, 0, 1, -100, -100, -100));
  EXPECT_THAT(labels(*set, 1), ElementsAre(-100, 2, -100, -100, -100, -100));
}

TEST_F(WordPieceDataset, LongSentencesLoseTheTagsOfWhatIsCut) {
  const auto set = open_dataset(spec("the D\ncat N\nsat V\nthe D\ncat N\n", "task=tag, length=5"));
  EXPECT_THAT(ids(*set, 0), ElementsAre(2, 4, 5, 6, 3));
  EXPECT_THAT(labels(*set, 0), ElementsAre(-100, 0, 1, 2, -100));
}

TEST_F(WordPieceDataset, FindsTheAnswerInThePassage) {
  const std::string table = "q,p,a\nwho sat?,the cats sat,The cats\nwho?,cat sat,dog\n";
  const auto set = open_dataset(spec(table, "task=answer, text=q, second=p, label=a, length=10"));
  ASSERT_EQ(set->size(), 1);
  EXPECT_THAT(ids(*set, 0), ElementsAre(2, 8, 6, 9, 3, 4, 5, 7, 6, 3));
  EXPECT_THAT(labels(*set, 0), ElementsAre(5, 7));
  EXPECT_EQ(set->form().classes, 10);
}

TEST_F(WordPieceDataset, SaysWhatIsMissing) {
  const auto what = [&](const std::string& text, const std::string& more) {
    return failure_of([&] { open_dataset(spec(text, more)); }).what;
  };
  EXPECT_THAT(what("the\n", "task=tag"), HasSubstr("line 1: 'the' has no tag"));
  EXPECT_THAT(what("q,p,a\nwho,cat,dog\n", "task=answer, text=q, second=p, label=a"), HasSubstr("no answer is a part of its passage"));
  EXPECT_THAT(what("q,p,a\nwho,cat,dog\n", "task=answer, text=q, label=a"), HasSubstr("wants second="));
  EXPECT_THAT(what("a,b\n", "text=a, label=b"), HasSubstr("no line below"));
  EXPECT_THAT(what("a,b\nx,y\n", "text=a, label=a"), HasSubstr("same column"));
}

}  // namespace
}  // namespace cohort::data
