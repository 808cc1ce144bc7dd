// Whether two sets mean the same classes by the same labels. A folder set numbers its subfolders in alphabetical order, so that one folder
// more or less gives every later class another label: without this check such a pair trains and scores nonsense.
// Owner: none. Threads: any. Failure: none.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace cohort::data {

struct ClassNames {
  std::span<const std::string> names;  // by label; empty: unknown, which agrees with everything
  std::string_view source;             // for the text: "data.train 'folder(..)'"
};

// The first label that has another name: "class 1 is 'cat' in A but 'cow' in B". Empty when there is none; b may lack a's last classes.
std::string difference_of_classes(const ClassNames& a, const ClassNames& b);

}  // namespace cohort::data
