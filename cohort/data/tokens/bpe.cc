#include "cohort/data/tokens/bpe.h"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/tokens/utf8.h"

namespace cohort::data {
namespace {

constexpr std::size_t kBytes = 256;
constexpr std::size_t kLongestWord = 128;  // bytes; encoding takes the square of it, and there are scripts without blanks

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) > 127; }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool sign(char c) { return !letter(c) && !digit(c) && !blank(c); }

std::size_t contraction(std::string_view text) {
  for (const std::string_view one : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(one)) return one.size();
  return 0;
}

std::size_t run(std::string_view text, std::size_t from, bool (*is)(char)) {
  std::size_t end = from;
  while (end < text.size() && end - from < kLongestWord && is(text[end])) ++end;
  return end;
}

// Length of the first word of a text that is not empty.
std::size_t first_word(std::string_view text) {
  if (const std::size_t length = contraction(text)) return length;
  const std::size_t start = text[0] == ' ' ? 1 : 0;
  for (bool (*is)(char) : {letter, digit, sign})
    if (const std::size_t end = run(text, start, is); end > start) return end;
  const std::size_t end = run(text, 0, blank);
  return end < text.size() && end > 1 ? end - 1 : end;  // the last blank goes with what follows
}

// GPT-2's: bytes that print stand for themselves, the others for 256, 257 ..
const std::array<char32_t, kBytes>& printed() {
  static const std::array<char32_t, kBytes> table = [] {
    std::array<char32_t, kBytes> made{};
    char32_t next = kBytes;
    for (char32_t byte = 0; byte < kBytes; ++byte) {
      const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      made[byte] = prints ? byte : next++;
    }
    return made;
  }();
  return table;
}

using Pair = std::pair<std::int64_t, std::int64_t>;

struct Word {
  std::vector<std::int64_t> tokens;
  std::int64_t count = 0;
};

void merge(Word& word, const Pair& pair, std::int64_t into) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < word.tokens.size(); ++i, ++kept) {
    const bool here = i + 1 < word.tokens.size() && word.tokens[i] == pair.first && word.tokens[i + 1] == pair.second;
    word.tokens[kept] = here ? into : word.tokens[i];
    if (here) ++i;
  }
  word.tokens.resize(kept);
}

// How often each pair of neighbours comes, and in which words; a merge touches the words that have its pair, and no others.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    for (std::size_t i = 0; i < words_.size(); ++i) count(i, 1);
  }
  // Of pairs as frequent the first in order: the same choice on every machine.
  std::pair<Pair, std::int64_t> most_frequent() const {
    std::pair<Pair, std::int64_t> best{};
    for (const auto& [pair, where] : pairs_)
      if (where.count > best.second) best = {pair, where.count};
    return best;
  }
  void replace(const Pair& pair, std::int64_t into) {
    const std::set<std::size_t> touched = std::move(pairs_[pair].words);
    for (const std::size_t i : touched) {
      count(i, -1);
      merge(words_[i], pair, into);
      count(i, 1);
    }
    pairs_.erase(pair);
  }

 private:
  struct Where {
    std::int64_t count = 0;
    std::set<std::size_t> words;  // some may have lost the pair since
  };
  void count(std::size_t i, std::int64_t sign) {
    const Word& word = words_[i];
    for (std::size_t k = 0; k + 1 < word.tokens.size(); ++k) {
      Where& where = pairs_[{word.tokens[k], word.tokens[k + 1]}];
      where.count += sign * word.count;
      if (sign > 0) where.words.insert(i);
    }
  }

  std::vector<Word> words_;
  std::map<Pair, Where> pairs_;
};

}  // namespace

std::vector<std::string_view> bpe_words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t length = first_word(text);
    words.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return words;
}

void Bpe::add(std::string token) {
  rank_.emplace(token, size());
  tokens_.push_back(std::move(token));
}

Bpe Bpe::learn(std::string_view text, std::int64_t vocabulary) {
  Bpe bpe;
  for (std::size_t byte = 0; byte < kBytes; ++byte) bpe.add(std::string(1, static_cast<char>(byte)));
  std::map<std::string_view, std::int64_t> counted;
  for (const std::string_view word : bpe_words(text)) ++counted[word];
  std::vector<Word> words;
  for (const auto& [word, count] : counted) {
    words.push_back({{}, count});
    for (const char c : word) words.back().tokens.push_back(static_cast<unsigned char>(c));
  }
  PairCounts pairs(std::move(words));
  while (bpe.size() < vocabulary) {
    const auto [pair, count] = pairs.most_frequent();
    if (count < 2) break;
    std::string token = bpe.tokens_[static_cast<std::size_t>(pair.first)] + bpe.tokens_[static_cast<std::size_t>(pair.second)];
    const auto known = bpe.rank_.find(token);  // two ways to the same bytes: they are one token
    const std::int64_t into = known == bpe.rank_.end() ? bpe.size() : known->second;
    if (known == bpe.rank_.end()) bpe.add(std::move(token));
    pairs.replace(pair, into);
  }
  return bpe;
}

Bpe Bpe::of_names(std::span<const std::string> names, std::string_view where) {
  std::unordered_map<char32_t, char> bytes;
  for (std::size_t byte = 0; byte < kBytes; ++byte) bytes.emplace(printed()[byte], static_cast<char>(byte));
  Bpe bpe;
  for (const std::string& name : names) {
    std::string token;
    for (std::size_t at = 0; at < name.size();) {
      const auto byte = bytes.find(next_code_point(name, at, where));
      if (byte == bytes.end())
        throw_failure(Kind::corrupt, "{}: token {} '{}' is not of the byte-level alphabet", where, bpe.size(), printable(name));
      token += byte->second;
    }
    if (token.empty() || (bpe.size() < static_cast<std::int64_t>(kBytes) && token != std::string(1, static_cast<char>(bpe.size()))))
      throw_failure(Kind::corrupt, "{}: token {} is '{}'; a byte-level vocabulary begins with the 256 bytes", where, bpe.size(),
                    printable(name));
    bpe.add(std::move(token));
  }
  if (bpe.size() < static_cast<std::int64_t>(kBytes))
    throw_failure(Kind::corrupt, "{}: {} tokens, fewer than there are bytes", where, bpe.size());
  return bpe;
}

void Bpe::encode_word(std::string_view word, std::vector<std::int64_t>& out) const {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (parts.size() > 1) {
    std::int64_t best = size();
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto at = rank_.find(parts[i] + parts[i + 1]);
      if (at != rank_.end() && at->second < best) best = at->second, where = i;
    }
    if (best == size()) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  for (const std::string& part : parts) out.push_back(rank_.at(part));
}

std::vector<std::int64_t> Bpe::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  std::unordered_map<std::string_view, std::vector<std::int64_t>> known;  // words come again and again
  for (const std::string_view word : bpe_words(text)) {
    const auto [at, fresh] = known.try_emplace(word);
    if (fresh) encode_word(word, at->second);
    tokens.insert(tokens.end(), at->second.begin(), at->second.end());
  }
  return tokens;
}

std::string Bpe::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) text += tokens_.at(static_cast<std::size_t>(token));
  return text;
}

std::vector<std::string> Bpe::names() const {
  std::vector<std::string> names;
  for (const std::string& token : tokens_) {
    names.emplace_back();
    for (const char c : token) append_utf8(names.back(), printed()[static_cast<unsigned char>(c)]);
  }
  return names;
}

}  // namespace cohort::data
