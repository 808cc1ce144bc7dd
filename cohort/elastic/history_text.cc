#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/elastic/history.h"

namespace cohort::elastic {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kEvents{"start", "commit", "heal", "restart"};
constexpr std::int64_t kMostNumber = std::int64_t{1} << 53;  // sums of two stay far from overflow, and every JSON reader agrees on it
constexpr std::size_t kMostLine = 16u << 20;                 // a million sample ids

std::int64_t number(const json& object, const char* key, std::int64_t otherwise, std::int64_t most = kMostNumber) {
  const auto at = object.find(key);
  if (at == object.end()) return otherwise;
  if (!at->is_number_integer() || at->get<std::int64_t>() < 0 || at->get<std::int64_t>() > most ||
      (at->is_number_unsigned() && at->get<std::uint64_t>() > static_cast<std::uint64_t>(most)))
    throw_failure(Kind::corrupt, "\"{}\" is {}, where a number from 0 to {} is expected", key, at->dump().substr(0, 40), most);
  return at->get<std::int64_t>();
}

std::string text(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return "";
  if (!at->is_string()) throw_failure(Kind::corrupt, "\"{}\" is no string", key);
  return at->get<std::string>();
}

HistoryLine::Event event_of(const json& object) {
  const std::string word = text(object, "event");
  for (std::size_t i = 0; i < kEvents.size(); ++i)
    if (word == kEvents[i]) return static_cast<HistoryLine::Event>(i);
  throw_failure(Kind::corrupt, "\"event\" is '{}'; it is one of start, commit, heal, restart", word.substr(0, 40));
}

}  // namespace

std::string encode_line(const HistoryLine& line) {
  json object{{"event", kEvents[static_cast<std::size_t>(line.event)]},
              {"epoch", line.epoch.value},
              {"step", line.step},
              {"rank", line.rank.value},
              {"worker", line.worker}};
  if (line.size > 0) object["size"] = line.size;
  if (!line.hash.empty()) object["hash"] = line.hash;
  if (line.of > 0) {
    object.update({{"data_epoch", line.data_epoch}, {"first", line.first}, {"total", line.total}, {"of", line.of}});
    object["samples"] = line.samples;
  }
  return object.dump(-1, ' ', true);
}

HistoryLine decode_line(std::string_view raw) {
  if (raw.size() > kMostLine) throw_failure(Kind::corrupt, "a line of {} bytes; at most {} are possible", raw.size(), kMostLine);
  int depth = 0;
  const auto shallow = [&](int at, json::parse_event_t, json&) {  // nothing of ours is deeper than its samples
    depth = std::max(depth, at);
    return at <= 2;
  };
  const json object = json::parse(raw, shallow, false);
  if (!object.is_object() || depth > 2) throw_failure(Kind::corrupt, "not a line of a history: {}", raw.substr(0, 60));
  HistoryLine line;
  line.event = event_of(object);
  line.epoch = Epoch{static_cast<std::uint32_t>(number(object, "epoch", 0, UINT32_MAX))};
  line.step = number(object, "step", 0);
  line.rank = Rank{static_cast<std::int32_t>(number(object, "rank", 0, INT32_MAX))};
  line.worker = text(object, "worker");
  line.size = static_cast<int>(number(object, "size", 0, INT32_MAX));
  line.hash = text(object, "hash");
  line.data_epoch = number(object, "data_epoch", 0);
  line.first = number(object, "first", 0);
  line.total = number(object, "total", 0);
  line.of = number(object, "of", 0);
  if (const auto at = object.find("samples"); at != object.end()) {
    if (!at->is_array()) throw_failure(Kind::corrupt, "\"samples\" is no list");
    for (const json& id : *at) line.samples.push_back(number(json{{"samples", id}}, "samples", 0));
  }
  return line;
}

std::vector<HistoryLine> decode_history(std::string_view raw, const std::string& where) {
  std::vector<HistoryLine> lines;
  for (int number = 1; !raw.empty(); ++number) {
    const auto end = raw.find('\n');
    if (end == std::string_view::npos) break;
    try {
      if (end > 0) lines.push_back(decode_line(raw.substr(0, end)));
    } catch (const Failure& failure) {
      throw_failure(Kind::corrupt, "{}, line {}: {}", where, number, failure.what());
    }
    raw.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace cohort::elastic
