// For tests: what the tests of the bench share.
#pragma once
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/bench/options.h"

namespace cohort::bench {

// The options of `cohort bench words...`.
inline BenchOptions parse(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return parse_bench_options(static_cast<int>(argv.size()), argv.data()).value();
}

// The text of body()'s Failure.
template <class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

}  // namespace cohort::bench
