#include "cohort/data/tokens/words.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace cohort::data {

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kBlanks = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n ";
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text) {
    if (kBlanks.find(c) != std::string_view::npos) {
      finish();
      continue;
    }
    word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  finish();
  return words;
}

std::vector<std::string> word_vocabulary(std::span<const std::string> texts) {
  std::unordered_map<std::string, std::size_t> place;
  std::vector<std::pair<std::int64_t, std::string>> counted;  // in the order of their first appearance
  for (const std::string& text : texts) {
    for (std::string& word : words_of(text)) {
      const auto [at, fresh] = place.try_emplace(word, counted.size());
      if (fresh) counted.emplace_back(0, std::move(word));
      ++counted[at->second].first;
    }
  }
  std::ranges::stable_sort(counted, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names{""};
  for (auto& [count, word] : counted) names.push_back(std::move(word));
  return names;
}

}  // namespace cohort::data
