// BERT's tokens (Devlin et al. 2018; Wu et al. 2016), those of bert-base-uncased and its kin:
//   clean      control characters go; tab, line feed, return and other white space become a blank; CJK characters stand alone
//   fold       accents go (NFD without nonspacing marks), then lower case
//   split      at blanks, and around every sign of punctuation
//   pieces     the longest beginning of a word that is in the vocabulary, then the longest of what is left with ## before it, ..; a word
//              that is not made up so, or of more than 100 characters, is [UNK]
// A vocabulary is a file with a token in each line, its number that of the line from 0; it has [PAD] (number 0), [UNK], [CLS] and [SEP].
// Owner: values. Threads: any. Failure: Kind::usage for a vocabulary that lacks those. A byte that begins no character becomes U+FFFD,
// which goes with the control characters. Equal to the field's libraries but for characters that are younger than their Unicode tables.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cohort::data {

class WordPiece {
 public:
  WordPiece(std::vector<std::string> vocabulary, std::string_view where);
  static WordPiece open(const std::string& path);

  static std::vector<std::string> words(std::string_view text);   // clean, folded and split
  std::vector<std::int64_t> encode(std::string_view text) const;  // without [CLS] and [SEP]
  void add_word(std::string_view word, std::vector<std::int64_t>& out) const;

  // [CLS] a [SEP], or [CLS] a [SEP] b [SEP], filled up with [PAD] to `length`; what is too long loses the last token of the longer one
  // until it fits.
  std::vector<std::int64_t> single(std::vector<std::int64_t> a, std::size_t length) const;
  std::vector<std::int64_t> pair(std::vector<std::int64_t> a, std::vector<std::int64_t> b, std::size_t length) const;

  std::int64_t separator() const { return separator_; }
  std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::int64_t known(std::string_view name, std::string_view where) const;

  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int64_t> number_;
  std::int64_t unknown_ = 0, begin_ = 0, separator_ = 0;
};

}  // namespace cohort::data
