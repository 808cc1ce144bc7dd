#include "cohort/data/tokens/wordpiece.h"

#include <algorithm>
#include <iterator>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/input.h"
#include "cohort/data/tokens/utf8.h"

namespace cohort::data {
namespace {

struct Range {
  char32_t first, last;
};
struct Fold {
  char32_t from;
  char32_t to[4];  // as many as are not 0
};

#include "cohort/data/tokens/unicode_tables.inc"

template <std::size_t n>
bool within(const Range (&table)[n], char32_t point) {
  const auto* const at =
      std::upper_bound(std::begin(table), std::end(table), point, [](char32_t p, const Range& r) { return p < r.first; });
  return at != std::begin(table) && point <= std::prev(at)->last;
}

bool chinese(char32_t p) {
  static constexpr Range kChinese[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
      {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};  // as everyone has it: 2B820 is left out
  return within(kChinese, p);
}

bool punctuation(char32_t p) {
  return (p >= 33 && p <= 47) || (p >= 58 && p <= 64) || (p >= 91 && p <= 96) || (p >= 123 && p <= 126) || within(kPunctuation, p);
}

// A syllable is its consonants and vowel (Unicode 3.12).
bool fold_hangul(std::string& out, char32_t p) {
  constexpr char32_t kFirst = 0xAC00, kLast = 0xD7A3, kVowels = 21, kTails = 28;
  if (p < kFirst || p > kLast) return false;
  const char32_t i = p - kFirst;
  append_utf8(out, 0x1100 + i / (kVowels * kTails));
  append_utf8(out, 0x1161 + i % (kVowels * kTails) / kTails);
  if (i % kTails != 0) append_utf8(out, 0x11A7 + i % kTails);
  return true;
}

void fold(std::string& out, char32_t p) {
  if (p < 0x80) return out.push_back(static_cast<char>(p >= 'A' && p <= 'Z' ? p - 'A' + 'a' : p));
  if (fold_hangul(out, p)) return;
  const auto* const at = std::lower_bound(std::begin(kFolds), std::end(kFolds), p, [](const Fold& f, char32_t q) { return f.from < q; });
  if (at == std::end(kFolds) || at->from != p) return append_utf8(out, p);
  for (const char32_t to : at->to)
    if (to != 0) append_utf8(out, to);
}

constexpr char32_t kNoCharacter = 0xFFFD;

char32_t next_or_replacement(std::string_view text, std::size_t& at) {
  try {
    return next_code_point(text, at, "");
  } catch (const Failure&) {
    ++at;
    return kNoCharacter;
  }
}

std::size_t characters(std::string_view word) {
  return static_cast<std::size_t>(std::ranges::count_if(word, [](char c) { return !continues_character(c); }));
}

}  // namespace

WordPiece::WordPiece(std::vector<std::string> vocabulary, std::string_view where) : names_(std::move(vocabulary)) {
  for (std::size_t i = 0; i < names_.size(); ++i) number_.emplace(names_[i], static_cast<std::int64_t>(i));
  unknown_ = known("[UNK]", where);
  begin_ = known("[CLS]", where);
  separator_ = known("[SEP]", where);
  if (known("[PAD]", where) != 0) throw_failure(Kind::usage, "{}: [PAD] is token {}, not 0", printable(where), known("[PAD]", where));
}

std::int64_t WordPiece::known(std::string_view name, std::string_view where) const {
  const auto at = number_.find(std::string(name));
  if (at == number_.end())
    throw_failure(Kind::usage, "{}: no token {}; a vocabulary of BERT has a token in each line, [PAD] first, and [UNK], [CLS], [SEP]",
                  printable(where), name);
  return at->second;
}

WordPiece WordPiece::open(const std::string& path) {
  const std::string text = read_input(path);
  std::vector<std::string> names;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    names.emplace_back(line);
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  return {std::move(names), path};
}

std::vector<std::string> WordPiece::words(std::string_view text) {
  std::vector<std::string> words;
  bool open = false;  // the last word takes more characters
  for (std::size_t at = 0; at < text.size();) {
    const char32_t p = next_or_replacement(text, at);
    const bool space = p == '\t' || p == '\n' || p == '\r';
    if (!space && (p == kNoCharacter || within(kControl, p))) continue;
    if (space || within(kBlank, p)) {
      open = false;
      continue;
    }
    std::string folded;
    fold(folded, p);
    if (folded.empty()) continue;
    const bool alone = chinese(p);
    for (std::size_t i = 0; i < folded.size();) {  // signs of punctuation among what it became stand alone
      const std::size_t begin = i;
      const char32_t part = next_code_point(folded, i, "");
      const bool sign = punctuation(part);
      if (!open || sign || alone) words.emplace_back();
      words.back() += folded.substr(begin, i - begin);
      open = !sign && !alone;
    }
  }
  return words;
}

void WordPiece::add_word(std::string_view word, std::vector<std::int64_t>& out) const {
  constexpr std::size_t kLongest = 100;
  const std::size_t before = out.size();
  const auto give_up = [&] {
    out.resize(before);
    out.push_back(unknown_);
  };
  if (characters(word) > kLongest) return give_up();
  std::string piece;
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t end = word.size();
    for (;; --end) {
      if (end == begin) return give_up();
      if (end < word.size() && continues_character(word[end])) continue;
      piece = begin > 0 ? "##" : "";
      piece += word.substr(begin, end - begin);
      const auto at = number_.find(piece);
      if (at == number_.end()) continue;
      out.push_back(at->second);
      break;
    }
    begin = end;
  }
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  for (const std::string& word : words(text)) add_word(word, tokens);
  return tokens;
}

std::vector<std::int64_t> WordPiece::single(std::vector<std::int64_t> a, std::size_t length) const {
  if (length < 3) throw_failure(Kind::usage, "wordpiece: {} tokens leave no room between [CLS] and [SEP]", length);
  if (a.size() > length - 2) a.resize(length - 2);
  std::vector<std::int64_t> tokens{begin_};
  tokens.insert(tokens.end(), a.begin(), a.end());
  tokens.push_back(separator_);
  tokens.resize(length, 0);
  return tokens;
}

std::vector<std::int64_t> WordPiece::pair(std::vector<std::int64_t> a, std::vector<std::int64_t> b, std::size_t length) const {
  if (length < 5) throw_failure(Kind::usage, "wordpiece: {} tokens leave no room for two texts", length);
  while (a.size() + b.size() > length - 3) (a.size() > b.size() ? a : b).pop_back();
  std::vector<std::int64_t> tokens{begin_};
  for (const auto* text : {&a, &b}) {
    tokens.insert(tokens.end(), text->begin(), text->end());
    tokens.push_back(separator_);
  }
  tokens.resize(length, 0);
  return tokens;
}

}  // namespace cohort::data
