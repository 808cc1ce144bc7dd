// JSON as the manifest needs it: doubled keys and deep nesting are refused, where nlohmann would keep the last and go on.
// Threads: any. Failure: Kind::corrupt naming `where` and the offset.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace cohort::checkpoint {

inline constexpr int kMostJsonDepth = 32;  // dump() recurses; nothing of ours comes near

nlohmann::json parse_strict_json(std::string_view text, std::string_view where, int most_depth = kMostJsonDepth);

}  // namespace cohort::checkpoint
