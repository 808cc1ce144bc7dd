#include "cohort/observe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/observe/report_page.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

constexpr double kLabelShare = 0.06;  // narrower parts of a bar cannot show their number

std::string tiles(const Report& r) {
  std::string out;
  for (const auto& [name, value] : r.highlights)
    out += fmt::format(R"(<div class="card tile"><b>{}</b><span>{}</span></div>)", html_text(value), html_text(name));
  return out.empty() ? out : fmt::format("<div class=\"tiles\">{}</div>\n", out);
}

std::string table_html(const Table& table) {
  const auto open = [&](std::string_view tag, std::size_t c) {
    return fmt::format("<{}{}>", tag, table.columns[c].align == Align::left ? " class=\"left\"" : "");
  };
  std::string out = "<div class=\"card scroll\"><table><thead><tr>";
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const auto& column = table.columns[c];
    out += open("th", c) + html_text(column.name);
    out += column.unit.empty() ? "</th>" : fmt::format("<small>{}</small></th>", html_text(column.unit));
  }
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < table.columns.size(); ++c) out += open("td", c) + (c < row.size() ? html_text(row[c]) : "") + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string table_section(std::string_view title, const Table& table) {
  return table.rows.empty() ? std::string() : fmt::format("<h2>{}</h2>\n{}", title, table_html(table));
}

double last_finite(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double v) { return std::isfinite(v); });
  return found == values.rend() ? std::nan("") : *found;
}

std::string figure(const Chart& chart) {
  std::string out = fmt::format("<figure class=\"card{}\"><figcaption><h3>{}</h3>", has_wall(chart) ? " both" : "", html_text(chart.title));
  for (std::size_t i = 0; i < chart.series.size(); ++i)
    out += fmt::format(R"(<span class="key"><i class="b{}"></i>{} <b>{}</b></span>)", i % 6, html_text(chart.series[i].name),
                       cell(last_finite(chart.series[i].y)));
  out += "</figcaption>" + chart_html(chart, XAxis::step);
  if (has_wall(chart)) out += chart_html(chart, XAxis::wall);
  return out + "</figure>\n";
}

std::string charts_section(const Report& r, bool choice) {
  if (r.charts.empty()) return {};
  std::string out = "<h2>Curves";
  if (choice)
    out += fmt::format(R"(<span class="choice"><label for="by-step">{}</label><label for="by-wall">wall time</label></span>)",
                       html_text(r.charts.front().x_name));
  out += "</h2>\n<div class=\"charts\">\n";
  for (const auto& chart : r.charts) out += figure(chart);
  return out + "</div>\n";
}

std::string bar_row(const std::string& name, const PhaseSeconds& seconds) {
  const auto shares = seconds.shares();
  std::string out = fmt::format("<span class=\"of\">{}</span><div class=\"bar\">", html_text(name));
  for (std::size_t i = 0; i < kPhases; ++i) {
    if (shares[i] <= 0) continue;
    const auto percent = percent_cell(shares[i]);
    const auto title = fmt::format("{} {} % ({})", kPhaseNames[i], percent, format_seconds(Seconds{seconds.seconds[i]}));
    out += fmt::format(R"(<div class="{}" style="flex:{:.4f}" title="{}">{}</div>)", kPhaseNames[i], shares[i], html_text(title),
                       shares[i] >= kLabelShare ? percent + " %" : "");
  }
  return out + "</div>\n";
}

std::string phases_section(const Report& r) {
  if (r.phases.empty()) return {};
  PhaseSeconds all;
  for (const auto& rank : r.phases) all += rank.seconds;
  std::string out = "<h2>Where the time went</h2>\n<div class=\"card\"><div class=\"keys\">";
  for (std::size_t i = 0; i < kPhases; ++i)
    if (all.seconds[i] > 0)
      out += fmt::format(R"(<span class="key"><i class="{0}"></i>{0} <b>{1} %</b></span>)", kPhaseNames[i], percent_cell(all.shares()[i]));
  out += "</div><div class=\"bars\">\n";
  if (r.phases.size() > 1) out += bar_row("all ranks", all);
  for (const auto& rank : r.phases) out += bar_row(rank.name, rank.seconds);
  return out + "</div></div>\n";
}

std::string config_section(const Report& r) {
  if (r.config.empty()) return {};
  return fmt::format("<h2>Configuration</h2>\n<details class=\"card\"><summary>as it was in effect</summary><pre>{}</pre></details>\n",
                     html_text(r.config));
}

}  // namespace

std::string report_html(const Report& r) {
  const bool choice = std::any_of(r.charts.begin(), r.charts.end(), has_wall);
  const auto title = html_text(r.title);
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src "
      "'unsafe-inline'\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n", title, kReportStyle);
  if (choice) {
    out += "<input class=\"switch\" type=\"radio\" name=\"x\" id=\"by-step\" checked aria-label=\"curves over steps\">\n";
    out += "<input class=\"switch\" type=\"radio\" name=\"x\" id=\"by-wall\" aria-label=\"curves over wall time\">\n";
  }
  out += fmt::format("<header><h1>{}</h1>\n", title);
  if (!r.subtitle.empty()) out += fmt::format("<p class=\"subtitle\">{}</p>\n", html_text(r.subtitle));
  out += "</header>\n<main>\n" + tiles(r) + table_section("Summary", r.summary) + charts_section(r, choice) + phases_section(r);
  out += table_section("Ranks", r.ranks) + config_section(r) + "<footer>Written by Cohort.</footer>\n</main>\n";
  if (!r.charts.empty()) out += fmt::format("<script>{}</script>\n", kReportScript);
  return out + "</body>\n</html>\n";
}

void write_report(const std::string& path, const Report& report) { write_file_atomically(path, report_html(report)); }

}  // namespace cohort::observe
