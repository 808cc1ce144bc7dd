// Text on its way out: into JSON, into HTML, into columns of a terminal. Whatever bytes come in, the result is valid there.
// Owner: everyone in this module. Threads: pure functions. Failure: none; bytes that are no UTF-8 become U+FFFD.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::observe {

std::string valid_utf8(std::string_view text);

std::string json_text(std::string_view text);  // with its quotes; "<" as \u003c, so that it may also stand inside an HTML script
std::string json_number(double value);         // the shortest text that reads back as the same number; null for nan and inf

std::string html_text(std::string_view text);  // for element content and for attributes in double quotes

// Columns on a terminal: one for each code point. (Wide and combining characters are rare in names of metrics.)
std::size_t columns(std::string_view text);
std::string clip(std::string_view text, std::size_t width);  // at most so many columns, an ellipsis for what is missing
std::string pad_left(std::string_view text, std::size_t width);
std::string pad_right(std::string_view text, std::size_t width);

}  // namespace cohort::observe
