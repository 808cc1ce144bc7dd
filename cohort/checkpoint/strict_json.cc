#include "cohort/checkpoint/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::checkpoint {

nlohmann::json parse_strict_json(std::string_view text, std::string_view where, int most_depth) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int depth, Event event, nlohmann::json& parsed) {
    if (depth > most_depth) throw_failure(Kind::corrupt, "{}: JSON nested deeper than {}", where, most_depth);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw_failure(Kind::corrupt, "{}: the key '{}' is given twice", where, printable(parsed.get<std::string>()));
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), look);
  } catch (const nlohmann::json::parse_error& error) {
    throw_failure(Kind::corrupt, "{}: no JSON at offset {}", where, error.byte);
  } catch (const nlohmann::json::exception& error) {  // a number outside double's range
    throw_failure(Kind::corrupt, "{}: no JSON: {}", where, printable(error.what()));
  }
}

}  // namespace cohort::checkpoint
