// Tables of variants for people: every row with every parameter, what it may be, its default and its meaning; as text for a terminal or as
// Markdown for a generated page.
// Owner: none. Threads: any. Failure: Kind::usage for a name that no row has.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"

namespace cohort {

struct SpecPage {
  std::string title, about;  // "Models", a sentence or two
  std::vector<SpecSchema> rows;
};

std::string allowed_text(const SpecParam& param);  // "integer 1..16", "one of none, batch": in spec_schema.cc

std::string page_text(std::span<const SpecPage> pages);
std::string page_markdown(std::string_view head, std::span<const SpecPage> pages);  // lines of at most 120 where words allow it
std::string row_text(std::span<const SpecPage> pages, std::string_view name);       // one row's text; rows of that name on any page

}  // namespace cohort
