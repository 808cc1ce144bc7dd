#include "cohort/data/tokens/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/text.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

WordPiece tiny() { return {{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "cat", "##s", "a", ","}, "test"}; }

}  // namespace

// What the field's own library for these tokenizers makes of the same texts.
TEST(WordPiece, CleansFoldsAndSplitsAsTheFieldDoes) {
  // clang-format off
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"Hello, world!", "hello|,|world|!"},
      {"unaffable", "unaffable"},
      {"1,234.5", "1|,|234|.|5"},
      {"a\xe2\x80\x8b" "b\x09" "c\xc2\xa0" "d", "ab|c|d"},
      {"\xe2\x98\x83", "\xe2\x98\x83"},
      {"don't stop-me: (now)...", "don|'|t|stop|-|me|:|(|now|)|.|.|."},
      {"\xc3\x86r\xc3\xb8sk\xc3\xb8" "bing Stra\xc3\x9f" "e \xc4\xb0stanbul \xc3\x80\xc3\x89\xc3\x8e\xc3\xb5\xc3\xbc", "\xc3\xa6r\xc3\xb8sk\xc3\xb8" "bing|stra\xc3\x9f" "e|istanbul|aeiou"},
      {"\xe6\x9d\xb1\xe4\xba\xac\xe9\x83\xbd" "2024\xe5\xb9\xb4", "\xe6\x9d\xb1|\xe4\xba\xac|\xe9\x83\xbd|2024|\xe5\xb9\xb4"},
      {"\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xed\x85\x8d\xec\x8a\xa4\xed\x8a\xb8", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xe1\x84\x80\xe1\x85\xae\xe1\x86\xa8\xe1\x84\x8b\xe1\x85\xa5|\xe1\x84\x90\xe1\x85\xa6\xe1\x86\xa8\xe1\x84\x89\xe1\x85\xb3\xe1\x84\x90\xe1\x85\xb3"},
      {"e\xcc\x81" "cole \xe1\xba\x9b\xcc\xa3 \xef\xac\x81ne", "ecole|\xc5\xbf|\xef\xac\x81ne"},
      {std::string_view("x\x00y\xef\xbf\xbdz\x07w", 9), "xyzw"},
      {"\xe2\x80\x9cquoted\xe2\x80\x9d \xe2\x80\x94 em\xe2\x80\x91" "dash\xe2\x80\xa6\xc2\xbfqu\xc3\xa9?", "\xe2\x80\x9c|quoted|\xe2\x80\x9d|\xe2\x80\x94|em|\xe2\x80\x91|dash|\xe2\x80\xa6|\xc2\xbf|que|?"},
      {"$5+3=8 ~`^|<tag>", "$|5|+|3|=|8|~|`|^|||<|tag|>"},
      {"\xe3\x80\x80wide\xe2\x80\x83space\xe2\x80\xa8line", "wide|space|line"},
      {"\xce\xa3\xce\xaf\xcf\x83\xcf\x85\xcf\x86\xce\xbf\xcf\x82 \xce\x9f\xce\x94\xce\x9f\xce\xa3", "\xcf\x83\xce\xb9\xcf\x83\xcf\x85\xcf\x86\xce\xbf\xcf\x82|\xce\xbf\xce\xb4\xce\xbf\xcf\x83"},
      {"\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd ok", "\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd|ok"},
      {"AT&T's 50% #1 @home_x", "at|&|t|'|s|50|%|#|1|@|home|_|x"},
      {"\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80 \xe0\xa4\xad\xe0\xa4\xbe\xe0\xa4\xb7\xe0\xa4\xbe", "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa4\xa6\xe0\xa5\x80|\xe0\xa4\xad\xe0\xa4\xbe\xe0\xa4\xb7\xe0\xa4\xbe"},
      {"\xc4\xb0\xc4\xb1", "i\xc4\xb1"},
      {"a\x0b" "b\x0c" "c\xc2\x85" "d", "abcd"},
  };
  // clang-format on
  for (const auto& [text, words] : rows) EXPECT_EQ(join(WordPiece::words(text), "|"), words) << text;
}

TEST(WordPiece, TakesTheLongestBeginning) {
  EXPECT_THAT(tiny().encode("unaffable, cats"), ElementsAre(4, 5, 6, 11, 8, 9));
  EXPECT_THAT(tiny().encode("una"), ElementsAre(4, 7));
}

TEST(WordPiece, AWordThatIsNotMadeUpIsUnknownAsAWhole) {
  EXPECT_THAT(tiny().encode("unaffablex cat"), ElementsAre(1, 8));
  EXPECT_THAT(tiny().encode(std::string(100, 'a')).front(), 10);
  EXPECT_THAT(tiny().encode(std::string(101, 'a')), ElementsAre(1));
}

TEST(WordPiece, BytesThatBeginNoCharacterVanish) { EXPECT_THAT(WordPiece::words("ca\xff\xc3t"), ElementsAre("cat")); }

TEST(WordPiece, PairsLoseTheEndOfTheLongerText) {
  const WordPiece pieces = tiny();
  EXPECT_THAT(pieces.single({8, 9}, 6), ElementsAre(2, 8, 9, 3, 0, 0));
  EXPECT_THAT(pieces.single({8, 9, 10}, 4), ElementsAre(2, 8, 9, 3));
  EXPECT_THAT(pieces.pair({8}, {10, 9}, 7), ElementsAre(2, 8, 3, 10, 9, 3, 0));
  EXPECT_THAT(pieces.pair({8, 8, 8, 8}, {10, 9}, 7), ElementsAre(2, 8, 8, 3, 10, 9, 3));
}

TEST(WordPiece, RefusesAFileThatIsNoVocabulary) {
  const Error error = failure_of([] { WordPiece({"cat", "dog"}, "words.txt"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::HasSubstr("words.txt: no token [UNK]"));
}

}  // namespace cohort::data
