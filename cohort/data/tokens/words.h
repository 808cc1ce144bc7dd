// Words as Keras' Tokenizer finds and numbers them:
//   text in lower case; each of !"#$%&()*+,-./:;<=>?@[\]^_`{|}~ tab and line end is a blank; split at blanks (don't stays one word)
//   numbers from 1 by falling count, words of the same count in the order in which they came first; 0 is padding
// Lower case is that of ASCII; other characters stay as they are.
// Owner: values. Threads: any. Failure: none.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

std::vector<std::string> words_of(std::string_view text);
// The vocabulary of these texts by number; its first entry, padding, is empty.
std::vector<std::string> word_vocabulary(std::span<const std::string> texts);

}  // namespace cohort::data
