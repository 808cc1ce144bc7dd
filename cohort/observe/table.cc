#include "cohort/observe/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

constexpr std::string_view kGap = "  ";

std::string line_of(const std::vector<Column>& columns, const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::string text = c < cells.size() ? cells[c] : "";
    line += c == 0 ? "" : kGap;
    line += columns[c].align == Align::left ? pad_right(text, widths[c]) : pad_left(text, widths[c]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string grouped(std::string digits) {  // "32104" -> "32 104"; four digits stay together
  const std::size_t sign = digits.starts_with('-') ? 1 : 0;
  if (digits.size() - sign < 5) return digits;
  for (std::size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, 1, ' ');
  return digits;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  if (cells.size() > columns.size()) throw_failure(Kind::usage, "table: a row of {} cells for {} columns", cells.size(), columns.size());
  rows.push_back(std::move(cells));
}

std::string table_text(const Table& table) {
  std::vector<std::vector<std::string>> lines(2);
  for (const auto& column : table.columns) {
    lines[0].push_back(printable(column.name));
    lines[1].push_back(printable(column.unit));
  }
  if (std::all_of(lines[1].begin(), lines[1].end(), [](const auto& unit) { return unit.empty(); })) lines.pop_back();
  const auto head = lines.size();
  for (const auto& row : table.rows) {
    auto& cells = lines.emplace_back();
    for (const auto& text : row) cells.push_back(printable(text));
  }
  std::vector<std::size_t> widths(table.columns.size());
  for (const auto& cells : lines)
    for (std::size_t c = 0; c < std::min(cells.size(), widths.size()); ++c) widths[c] = std::max(widths[c], columns(cells[c]));
  std::vector<std::string> rule;
  for (const auto width : widths) rule.emplace_back(width, '-');
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(head), rule);
  std::string out;
  for (const auto& cells : lines) out += line_of(table.columns, cells, widths);
  return out;
}

std::string cell(double value) {
  if (std::isnan(value)) return "–";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e15 || size < 1e-4)) return fmt::format("{:.4g}", value);
  if (size >= 1000) return grouped(fmt::format("{:.0f}", value));
  return fmt::format("{:.4g}", value);
}

std::string cell(std::int64_t value) { return grouped(fmt::format("{}", value)); }

std::string percent_cell(double share) { return std::isfinite(share) ? fmt::format("{:.1f}", 100 * share) : "–"; }

}  // namespace cohort::observe
