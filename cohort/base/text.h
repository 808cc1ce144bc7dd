// Helpers for text: sizes and times as people write them, strict numbers, and "did you mean".
// Owner: everyone. Threads: any. Failure: Kind::usage naming the text; nothing is guessed or clamped.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort {

// "1MiB", "100MB" (10^6), "4k" (a bare k, M, G, T is binary, as in dd and the usual benchmarks), "25e6", "1.5 GiB"; a whole number of
// bytes.
std::size_t parse_bytes(std::string_view text);
std::string format_bytes(std::size_t bytes);  // for people: "24 MiB", "1.5 KiB", "999 B"
std::string exact_bytes(std::size_t bytes);   // for files: "24MiB", "1000"; parse_bytes gives the same number back

// "500ms", "2s", "36us", "10ns", "5min", "1h"; a bare number is seconds. Never negative.
Seconds parse_seconds(std::string_view text);
std::string format_seconds(Seconds span);  // for people: "36.2 us", "1.5 s", "2.5 min"
std::string format_us(Seconds span);       // for tables in microseconds: "0.412", "36.2", "9104"
std::string exact_seconds(Seconds span);   // for files: "0.5s"; parse_seconds gives the same number back

// Decimal only. 010, 1e3, 0x10, +5 and " 5" are no integers; inf and nan are no reals.
std::int64_t parse_int(std::string_view text);
double parse_real(std::string_view text);
bool parse_bool(std::string_view text);  // true or false, no other words

std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);  // "a,,b" has three parts, "" has none
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string join(std::span<const std::string_view> parts, std::string_view separator);

// Text from outside made safe to print: control bytes as \n, \t or \x1b, at most `most` bytes.
std::string printable(std::string_view text, std::size_t most = 200);

// The candidate a typist most likely meant; empty when none is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);
// "unknown codec 'tpok'; did you mean 'topk'? known: none, topk", and the same thrown as Kind::usage.
std::string unknown_text(std::string_view what, std::string_view name, std::span<const std::string_view> known);
[[noreturn]] void throw_unknown(std::string_view what, std::string_view name, std::span<const std::string_view> known);

}  // namespace cohort
