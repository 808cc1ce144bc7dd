// Byte pair encoding over bytes (Sennrich et al. 2016; GPT-2's byte level): a text is cut into words, a word is bytes, and the pair of
// neighbours that is most frequent becomes a token of its own, again and again.
//   vocabulary   256 bytes, then the merged tokens in the order in which they were found: a token's number is its rank
//   encode       in each word the two neighbours whose union has the lowest rank are merged, until none is a token
// Any bytes can be encoded, and decode(encode(text)) == text. Words are cut as GPT-2 does: contractions ('s 't 're 've 'm 'll 'd), one
// blank with letters, with digits or with other signs, and blanks; bytes above 127 count as letters.
// Names of tokens are printable: a byte that is not is written as the character 256 + n, in GPT-2's order.
// Owner: values. Threads: any. Failure: Kind::corrupt for names that are no byte-level vocabulary.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cohort::data {

std::vector<std::string_view> bpe_words(std::string_view text);

class Bpe {
 public:
  // At most `vocabulary` tokens, 256 or more; fewer where no pair comes twice. Of pairs as frequent the lower ranks go first.
  static Bpe learn(std::string_view text, std::int64_t vocabulary);
  static Bpe of_names(std::span<const std::string> names, std::string_view where);

  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> tokens) const;
  std::vector<std::string> names() const;  // what of_names() takes back
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  void add(std::string token);
  void encode_word(std::string_view word, std::vector<std::int64_t>& out) const;

  std::vector<std::string> tokens_;  // their bytes, by rank
  std::unordered_map<std::string, std::int64_t> rank_;
};

}  // namespace cohort::data
