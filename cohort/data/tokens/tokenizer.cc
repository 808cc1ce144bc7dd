#include "cohort/data/tokens/tokenizer.h"

#include <set>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/tokens/utf8.h"
#include "cohort/data/tokens/words.h"

namespace cohort::data {
namespace {

std::vector<std::string> characters_of(std::string_view text, std::string_view where) {
  std::set<char32_t> points;
  for (std::size_t at = 0; at < text.size();) points.insert(next_code_point(text, at, where));
  std::vector<std::string> names;
  for (const char32_t point : points) names.push_back(utf8(point));
  return names;
}

}  // namespace

Tokenizer::Unit Tokenizer::unit_of(std::string_view word) {
  if (word == "bytes") return Unit::bytes;
  if (word == "characters") return Unit::characters;
  if (word == "bpe") return Unit::bpe;
  if (word == "words") return Unit::words;
  constexpr std::string_view kKnown[] = {"bytes", "characters", "bpe", "words"};
  throw_unknown("token", word, kKnown);
}

Tokenizer Tokenizer::learn(Unit unit, std::string_view text, std::int64_t vocabulary, std::string_view where) {
  switch (unit) {
    case Unit::bytes: return {unit, {}, where};
    case Unit::characters: return {unit, characters_of(text, where), where};
    case Unit::bpe: return {unit, Bpe::learn(text, vocabulary).names(), where};
    case Unit::words: break;
  }
  const std::string all(text);
  return {unit, word_vocabulary(std::span(&all, 1)), where};
}

Tokenizer::Tokenizer(Unit unit, std::vector<std::string> names, std::string_view where) : unit_(unit), names_(std::move(names)) {
  if (unit == Unit::bpe) bpe_ = Bpe::of_names(names_, where);
  for (std::size_t i = 0; i < names_.size(); ++i) number_.emplace(names_[i], static_cast<std::int64_t>(i));
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, std::string_view where) const {
  if (bpe_) return bpe_->encode(text);
  std::vector<std::int64_t> tokens;
  if (unit_ == Unit::bytes) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  } else if (unit_ == Unit::words) {
    for (const std::string& word : words_of(text))
      if (const auto at = number_.find(word); at != number_.end()) tokens.push_back(at->second);
  } else {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      next_code_point(text, at, where);
      const auto known = number_.find(std::string(text.substr(begin, at - begin)));
      if (known == number_.end())
        throw_failure(Kind::usage, "{}: the character '{}' at byte {} is not among the {} of the training text; tokens=bpe takes any text",
                      printable(where), printable(text.substr(begin, at - begin)), begin, names_.size());
      tokens.push_back(known->second);
    }
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int64_t> tokens) const {
  if (bpe_) return bpe_->decode(tokens);
  std::string text;
  for (const std::int64_t token : tokens) {
    if (unit_ == Unit::bytes) {
      text += static_cast<char>(static_cast<unsigned char>(token));
      continue;
    }
    const std::string& name = names_.at(static_cast<std::size_t>(token));
    if (unit_ == Unit::words && !text.empty() && !name.empty()) text += ' ';
    text += name;
  }
  return text;
}

}  // namespace cohort::data
