#include "cohort/base/spec_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::HasSubstr;

std::vector<SpecPage> pages() {
  std::string words;
  for (int i = 0; i < 40; ++i) words += "longish ";
  return {{"Things",
           "What there is.",
           {SpecSchema("plain", "without parameters"),
            SpecSchema("tuned", "with some",
                       {{.name = "size", .type = SpecParam::Type::integer, .doc = "how large", .preset = "4", .low = 1, .high = 1 << 24},
                        {.name = "kind", .type = SpecParam::Type::word, .doc = words, .preset = "a", .words = {"a", "b"}},
                        {.name = "file", .type = SpecParam::Type::text, .doc = "path"},
                        {.name = "note", .type = SpecParam::Type::text, .doc = "free", .preset = ""}})}}};
}

}  // namespace

TEST(SpecPage, ListsEveryRowWithEveryParameterItsRangeDefaultAndMeaning) {
  for (const std::string& text : {page_text(pages()), page_markdown("# Head\n", pages())}) {
    for (const char* part :
         {"Things", "plain", "without parameters", "integer 1..16777216", "one of a, b", "required", "how large", "path"})
      EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(page_markdown("# Head\n", pages()), HasSubstr("- **`size`** (integer 1..16777216; default `4`): how large\n"));
}

TEST(SpecPage, MarkdownKeepsToTheWidthOfDocuments) {
  const std::string text = page_markdown("", pages());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 120u) << text.substr(at, end - at);
    at = end + 1;
  }
}

TEST(SpecPage, OneRowByNameOrTheNearest) {
  EXPECT_THAT(row_text(pages(), "tuned"), testing::AllOf(HasSubstr("size"), testing::Not(HasSubstr("plain"))));
  EXPECT_THAT(failure_of([] { row_text(pages(), "tund"); }).what, HasSubstr("did you mean 'tuned'"));
}

}  // namespace cohort
