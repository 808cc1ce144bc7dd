#include "cohort/base/spec_page.h"

#include <fmt/format.h>

#include "cohort/base/text.h"

namespace cohort {
namespace {

// Words in lines of at most 120 characters; later lines begin with `indent`.
std::string wrapped(std::string_view text, std::string_view indent) {
  constexpr std::size_t kWidth = 120;
  std::string out, line;
  for (const std::string_view word : split(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = indent;
    }
    line += (line.empty() || line == indent ? "" : " ") + std::string(word);
  }
  return out + line + "\n";
}

std::string item(const SpecParam& p) {
  const std::string preset = !p.preset ? "required" : p.preset->empty() ? "default empty" : fmt::format("default `{}`", *p.preset);
  return wrapped(fmt::format("- **`{}`** ({}; {}): {}", p.name, allowed_text(p), preset, p.doc), "  ");
}

}  // namespace

std::string page_text(std::span<const SpecPage> pages) {
  std::string out;
  for (const SpecPage& page : pages) {
    out += fmt::format("{}{}: {}\n", out.empty() ? "" : "\n", page.title, page.about);
    for (const SpecSchema& row : page.rows) out += "\n" + row.help();
  }
  return out;
}

std::string page_markdown(std::string_view head, std::span<const SpecPage> pages) {
  std::string out(head);
  for (const SpecPage& page : pages) {
    out += fmt::format("\n## {}\n\n{}", page.title, wrapped(page.about, ""));
    for (const SpecSchema& row : page.rows) {
      out += fmt::format("\n### `{}`\n\n{}", row.name(), wrapped(row.doc(), ""));
      if (!row.params().empty()) out += "\n";
      for (const SpecParam& p : row.params()) out += item(p);
    }
  }
  return out;
}

std::string row_text(std::span<const SpecPage> pages, std::string_view name) {
  std::string out;
  std::vector<std::string_view> known;
  for (const SpecPage& page : pages)
    for (const SpecSchema& row : page.rows) {
      known.emplace_back(row.name());
      if (row.name() == name) out += row.help();
    }
  if (out.empty()) throw_unknown("name", name, known);
  return out;
}

}  // namespace cohort
