#include "cohort/observe/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace cohort::observe {
namespace {

TEST(Text, InvalidUtf8BecomesTheReplacementCharacter) {
  EXPECT_EQ(valid_utf8("grüße ▍ 𝛼"), "grüße ▍ 𝛼");
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(valid_utf8("\xc0\xaf"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong slash";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "surrogate";
  EXPECT_EQ(valid_utf8("\xe2\x96"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "cut short";
}

TEST(Text, JsonReadsBackAsTheSameText) {
  for (const char* text : {"plain", "quote \" slash \\ line\n tab\t bell\x07", "</script>", "▍ü𝛼", ""})
    EXPECT_EQ(nlohmann::json::parse(json_text(text)).get<std::string>(), text);
  EXPECT_EQ(json_text("</script>").find('<'), std::string::npos);
  for (int c = 0; c < 256; ++c) EXPECT_TRUE(nlohmann::json::accept(json_text(std::string(1, static_cast<char>(c)))));
}

TEST(Text, NumbersReadBackExactlyAndNonFiniteOnesAreNull) {
  for (const double x : {0.1, -0.0, 5.0, 1e300, 5e-324, 123456789.125}) EXPECT_EQ(nlohmann::json::parse(json_number(x)).get<double>(), x);
  EXPECT_EQ(json_number(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(Text, HtmlHasNoMarkUpLeft) {
  EXPECT_EQ(html_text("<b a=\"x\" c='y'>&"), "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;");
  EXPECT_EQ(html_text("a\x01\nb"), "a\xEF\xBF\xBD\nb");
}

TEST(Text, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(columns("███▍"), 4U);
  EXPECT_EQ(clip("grüße", 5), "grüße");
  EXPECT_EQ(clip("grüßen", 5), "grüß…");
  EXPECT_EQ(clip("abc", 0), "");
  EXPECT_EQ(pad_left("ü", 3), "  ü");
  EXPECT_EQ(pad_right("ü", 3), "ü  ");
}

}  // namespace
}  // namespace cohort::observe
