// UTF-8 as code points. Owner: values. Threads: any. Failure: Kind::corrupt naming `where` and the byte that begins no character.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::data {

// The code point at text[at], and `at` moved behind it. Overlong forms, surrogates and values above 10FFFF are no characters.
char32_t next_code_point(std::string_view text, std::size_t& at, std::string_view where);
void append_utf8(std::string& out, char32_t point);
std::string utf8(char32_t point);
inline bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace cohort::data
