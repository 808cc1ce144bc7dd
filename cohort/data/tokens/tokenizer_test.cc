#include "cohort/data/tokens/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::data {

using testing::ElementsAre;
using Unit = Tokenizer::Unit;

TEST(Tokenizer, GivesTextsBack) {
  const std::string text = "sn\xc3\xb6 and snow, snow";
  for (const Unit unit : {Unit::bytes, Unit::characters, Unit::bpe}) {
    const Tokenizer tokens = Tokenizer::learn(unit, text, 260, "test");
    EXPECT_EQ(tokens.decode(tokens.encode(text, "test")), text);
  }
}

TEST(Tokenizer, CharactersAreInTheOrderOfTheirCodePoints) {
  const Tokenizer tokens = Tokenizer::learn(Unit::characters,
                                            "b\xc3\xb6"
                                            "a\n",
                                            0, "test");
  EXPECT_THAT(tokens.names(), ElementsAre("\n", "a", "b", "\xc3\xb6"));
  EXPECT_THAT(tokens.encode("\xc3\xb6"
                            "b",
                            "test"),
              ElementsAre(3, 2));
}

TEST(Tokenizer, WordsHaveBlanksBetweenThemAndUnknownOnesVanish) {
  const Tokenizer tokens = Tokenizer::learn(Unit::words, "to be or not to be", 0, "test");
  EXPECT_THAT(tokens.encode("To SEE or be", "test"), ElementsAre(1, 3, 2));
  EXPECT_EQ(tokens.decode(std::vector<std::int64_t>{0, 1, 0, 2}), "to be");
}

TEST(Tokenizer, RefusesWhatIsNoUtf8WithItsPlace) {
  for (const char* bad : {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf5\x80\x80\x80"}) {
    const Error error = failure_of([&] { Tokenizer::learn(Unit::characters, bad, 0, "some.txt"); });
    EXPECT_EQ(error.kind, Kind::corrupt) << bad;
    EXPECT_THAT(error.what, testing::HasSubstr("some.txt: byte 2 "));
  }
}

}  // namespace cohort::data
