#include "cohort/base/terminal_text.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(TerminalText, EscapesWhatATerminalWouldObeyAndKeepsLinesAndLetters) {
  EXPECT_EQ(terminal_text("class '\x1b[2J\x07' in a\nsecond\tline"), "class '\\x1b[2J\\x07' in a\nsecond\\tline");
  EXPECT_EQ(terminal_text("Größe 猫"), "Größe 猫");
  EXPECT_EQ(terminal_text("a\nb", "\n    "), "a\n    b");
  EXPECT_EQ(terminal_text(std::string(5000, '\x1b')).size(), 20'000U) << "nothing is cut";
  EXPECT_EQ(terminal_text(""), "");
}

}  // namespace
}  // namespace cohort
