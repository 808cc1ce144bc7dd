#include "cohort/data/tokens/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::data {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Words, AreKeras) {
  EXPECT_THAT(words_of("Don't STOP, it's 5-6 (or so)!"), ElementsAre("don't", "stop", "it's", "5", "6", "or", "so"));
  EXPECT_THAT(words_of("a\tb\nc  d_e"), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(words_of(" .,;"), IsEmpty());
  EXPECT_THAT(words_of("\xc3\x89t\xc3\xa9"), ElementsAre("\xc3\x89t\xc3\xa9"));
}

TEST(Words, AreNumberedByCountThenByFirstAppearance) {
  const std::vector<std::string> texts{"b a c a", "d c e"};
  EXPECT_THAT(word_vocabulary(texts), ElementsAre("", "a", "c", "b", "d", "e"));
}

}  // namespace cohort::data
