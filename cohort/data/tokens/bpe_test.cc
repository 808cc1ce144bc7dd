#include "cohort/data/tokens/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::data {

using testing::ElementsAre;

TEST(Bpe, CutsWordsAsGpt2Does) {
  EXPECT_THAT(bpe_words("Hello world's 42 (ok)"), ElementsAre("Hello", " world", "'s", " 42", " (", "ok", ")"));
  EXPECT_THAT(bpe_words("a   b\n"), ElementsAre("a", "  ", " b", "\n"));
  EXPECT_THAT(bpe_words("  "), ElementsAre("  "));
}

TEST(Bpe, MergesTheMostFrequentPairFirst) {
  const Bpe bpe = Bpe::learn("low low low lower lowest", 260);
  const std::vector<std::string> names = bpe.names();
  EXPECT_THAT(std::vector<std::string>(names.begin() + 256, names.end()), ElementsAre("lo", "low", "\xc4\xa0low", "\xc4\xa0lowe"));
  EXPECT_THAT(bpe.encode("low"), ElementsAre(257));
  EXPECT_THAT(bpe.encode(" lowly"), ElementsAre(258, 'l', 'y'));
}

TEST(Bpe, GivesBackAnyBytes) {
  const Bpe bpe = Bpe::learn("the theatre then the them", 300);
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(bpe.decode(bpe.encode(all + " the theatre" + all)), all + " the theatre" + all);
}

TEST(Bpe, ComesBackFromItsNames) {
  const Bpe bpe = Bpe::learn("the theatre then the them", 300);
  const std::vector<std::string> names = bpe.names();
  const Bpe again = Bpe::of_names(names, "test");
  EXPECT_EQ(again.encode("the \xff\n theme"), bpe.encode("the \xff\n theme"));
}

TEST(Bpe, StopsWhereNoPairComesTwice) { EXPECT_EQ(Bpe::learn("abcd", 1000).size(), 256); }

TEST(Bpe, RefusesNamesThatAreNoVocabulary) {
  EXPECT_EQ(failure_of([] { Bpe::of_names(std::vector<std::string>{"a", "b"}, "test"); }).kind, Kind::corrupt);
  std::vector<std::string> names = Bpe::learn("", 256).names();
  names.emplace_back("\xe2\x98\x83");
  EXPECT_EQ(failure_of([&] { Bpe::of_names(names, "test"); }).kind, Kind::corrupt);
}

// Scripts without blanks are one word a paragraph; encoding takes the square of a word's length.
TEST(Bpe, LongWordsAreCutAndComeBack) {
  std::string text;
  for (int k = 0; k < 20000; ++k) text += "\xe6\x96\x87";
  const Bpe bpe = Bpe::learn(text.substr(0, 3000), 300);
  EXPECT_EQ(bpe.decode(bpe.encode(text)), text);
}

}  // namespace cohort::data
