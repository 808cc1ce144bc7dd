// Text to token numbers and back, as a language model was trained: what the data sets `text` and `ngrams` make of a file, and what
// `cohort generate` makes of a prompt. The vocabulary is Form::names, so that a checkpoint has it.
//   bytes        256 tokens, no names
//   characters   the characters of UTF-8 that the text has, in order of their code points
//   bpe          byte pairs (bpe.h)
//   words        Keras' words (words.h); decoded with a blank between them; words that are not in the vocabulary vanish
// Owner: values. Threads: any. Failure: Kind::usage for a character that training did not have; Kind::corrupt for no UTF-8.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/data/tokens/bpe.h"

namespace cohort::data {

class Tokenizer {
 public:
  enum class Unit { bytes, characters, bpe, words };
  static Unit unit_of(std::string_view word);  // "characters"; Kind::usage otherwise

  // Learned from a text. vocabulary: of bpe.
  static Tokenizer learn(Unit unit, std::string_view text, std::int64_t vocabulary, std::string_view where);
  Tokenizer(Unit unit, std::vector<std::string> names, std::string_view where);

  std::vector<std::int64_t> encode(std::string_view text, std::string_view where) const;
  std::string decode(std::span<const std::int64_t> tokens) const;
  const std::vector<std::string>& names() const { return names_; }  // empty for bytes
  std::int64_t size() const { return unit_ == Unit::bytes ? 256 : static_cast<std::int64_t>(names_.size()); }
  Unit unit() const { return unit_; }

 private:
  Unit unit_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int64_t> number_;
  std::optional<Bpe> bpe_;
};

}  // namespace cohort::data
